//! Memory through which the CTAs of a plain GEMM pass the sums of cut tiles.

use crate::error::Result;
use crate::kernels::collective::share::{share_bytes, word_offset};
use crate::kernels::entries::Entry;
use crate::kernels::shape::GlobalAddr;
use crate::plan::select::{MayCut, Work};
use crate::world::{Buffer, World};

/// The memory of one plan: sums, then words.
///
/// All tiles that the plan may choose share it, since its calls follow each other. Words are 0 between calls, and lie behind
/// the sums of every tile: there is room for the same bytes of sums whatever the tile ([`Work::room`]).
#[derive(Debug)]
pub struct Shares {
    memory: Buffer,
    /// Where the words begin, and bytes of the most of them.
    words: (u64, usize),
}

impl Shares {
    /// Memory for calls of at most `work.m` rows; none where no call may cut a tile along K.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if there is not enough.
    pub fn new(
        world: &World,
        rank: usize,
        entries: &[&'static Entry],
        work: Work,
        may: MayCut,
    ) -> Result<Option<Self>> {
        let cut = entries.iter().filter(|entry| work.may_split(entry, may));
        let sizes = cut.map(|entry| {
            let (tile, room) = (entry.tile_extent(), Work::room(work.ctas, entry));
            (word_offset(tile, room), share_bytes(tile, room))
        });
        let Some((words, bytes)) = sizes.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))) else { return Ok(None) };
        let shares = Self { memory: world.allocate(rank, bytes)?, words: (words, (bytes - words) as usize) };
        shares.clear(world, rank)?;
        Ok(Some(shares))
    }

    /// Its first byte.
    pub fn addr(&self) -> GlobalAddr {
        self.memory.addr()
    }

    /// Says that no sums are there for the taking: before the first call, and after one that gave up.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if the copy fails.
    pub fn clear(&self, world: &World, rank: usize) -> Result<()> {
        let (first, bytes) = self.words;
        world.write(rank, self.memory.addr().plus(first), &vec![0; bytes])
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::data;
    use crate::emulator::EmulatorOptions;
    use crate::kernels::entries::Op;
    use crate::matrix::Matrix;
    use crate::ops::Gemm;
    use crate::plan::select::{choose, eligible};
    use crate::plan::{Layout, SplitK, Variant};
    use crate::reference::gemm;
    use crate::world::{EmulatedOptions, Tensor};

    const CTAS: u32 = 3;
    const N: usize = 392;
    const K: usize = 1024;

    /// Rows of calls, so that some take one tile and some another.
    const CALLS: [usize; 8] = [33, 200, 100, 64, 193, 65, 1, 200];

    #[test]
    fn calls_of_one_plan_share_the_memory_whatever_their_tiles() {
        let entries: Vec<_> = eligible(Op::Gemm, Variant::default(), None).collect();
        for split_k in [SplitK::Always, SplitK::Runs] {
            calls_share_the_memory(&entries, split_k);
        }
    }

    fn calls_share_the_memory(entries: &[&'static Entry], split_k: SplitK) {
        let choices = CALLS.map(|m| {
            let work = Work { m: m as u32, n: N as u32, k: K as u32, ctas: CTAS };
            choose(entries, work, split_k).unwrap()
        });
        assert!(choices.iter().all(|choice| choice.cut.is_along_k()), "{choices:?}");
        assert!(choices.iter().any(|choice| choice.entry != choices[0].entry), "{choices:?}");
        for seed in 0..8 {
            let emulator = EmulatorOptions::with_seed(seed);
            let options = EmulatedOptions { ctas_per_rank: CTAS, emulator, ..EmulatedOptions::default() };
            let world = World::emulated_with(1, options).unwrap();
            let plan = Gemm::builder(&world, 0).shape(200, N, K).split_k(split_k).build().unwrap();
            let b: Matrix<bf16> = data::integers(N, K, 1, 3);
            let bt = Tensor::from_slice(&world, 0, N, K, b.data()).unwrap();
            for (call, m) in CALLS.into_iter().enumerate() {
                let a: Matrix<bf16> = data::integers(m, K, 2 + call as u64, 3);
                let at = Tensor::from_slice(&world, 0, m, K, a.data()).unwrap();
                let mut d = Tensor::poisoned::<bf16>(&world, 0, m, N).unwrap();
                plan.run(m, &at, &bt, &mut d).unwrap();
                let exact = gemm(Layout::Nt, a.view(), b.view()).unwrap().map(|x| bf16::from_f64(*x));
                assert!(d.to_vec::<bf16>().unwrap() == exact.data(), "seed {seed}, call {call} over {m} rows");
            }
        }
    }

    #[test]
    fn the_words_of_one_tile_lie_behind_the_sums_of_every_other() {
        for ctas in [1, 7, 132] {
            let cut = eligible(Op::Gemm, Variant::default(), None).filter(|e| e.splits);
            let offsets = cut.map(|e| word_offset(e.tile_extent(), Work::room(ctas, e)));
            assert!(offsets.into_iter().all(|offset| offset == u64::from(ctas) * 128 * 256 * 4));
        }
    }
}
