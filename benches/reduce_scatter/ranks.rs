//! The ranks, what they run on, and their operands.

use std::rc::Rc;

use tilewire::driver::nccl::Communicators;
use tilewire::driver::{Gpu, Stream};
use tilewire::measure::num_sets;
use tilewire::ops::RankMatrices;
use tilewire::reference::chunks_of;
use tilewire::{Layout, Result, World};

use crate::support::operands::Operands;
use crate::support::stream_of;

/// Ranks of a world on real GPUs, or several on one.
pub struct Ranks {
    pub world: World,
    /// Every GPU once.
    pub gpus: Vec<Gpu>,
    /// Every rank's stream.
    pub streams: Vec<Stream>,
    /// NCCL over the GPUs, where there are several and NCCL is there. Made once: connecting takes a second.
    pub nccl: Option<Rc<Communicators>>,
}

impl Ranks {
    /// One rank on each of several GPUs; `virtual_ranks` on one.
    pub fn new(gpus: &[Gpu], virtual_ranks: usize) -> Result<Self> {
        let world = match gpus {
            [gpu] => World::virtual_ranks(gpu.ordinal(), virtual_ranks)?,
            several => World::local(&several.iter().map(Gpu::ordinal).collect::<Vec<_>>())?,
        };
        let mut ranks = Self { world, gpus: gpus.to_vec(), streams: Vec::new(), nccl: None };
        ranks.streams = (0..ranks.size()).map(|r| stream_of(&ranks.world, r, ranks.gpu(r))).collect::<Result<_>>()?;
        if ranks.is_real() {
            match Communicators::new(gpus) {
                Ok(communicators) => ranks.nccl = Some(Rc::new(communicators)),
                Err(error) => println!("{error}: nothing is compared with NCCL"),
            }
        }
        Ok(ranks)
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.world.size()
    }

    /// Whether every rank has a GPU of its own.
    pub fn is_real(&self) -> bool {
        self.gpus.len() > 1
    }

    /// The GPU of a rank.
    pub fn gpu(&self, rank: usize) -> &Gpu {
        &self.gpus[rank % self.gpus.len()]
    }

    /// The extents, rounded up so that NCCL's equal chunks and rows of whole 16 bytes are possible: nothing changes over 1, 2,
    /// 4 or 8 ranks.
    pub fn fit(&self, [m, n, k]: [usize; 3]) -> [usize; 3] {
        [m.next_multiple_of(self.size()), n, k.next_multiple_of(8 * self.size())]
    }

    /// M, N and K of one rank, where K is over all ranks.
    pub fn on_one_rank(&self, [m, n, k]: [usize; 3]) -> [usize; 3] {
        [m, n, k / self.size()]
    }

    /// M, N and K of what one GPU computes.
    pub fn on_one_gpu(&self, [m, n, k]: [usize; 3]) -> [usize; 3] {
        [m, n, k / self.gpus.len()]
    }

    /// Random operands of every rank, in enough sets to pass the cache.
    pub fn operands(&self, extents: [usize; 3]) -> Result<Vec<Operands>> {
        let of_rank = self.on_one_rank(extents);
        let chunks = chunks_of(extents[0], self.size())?;
        let made = chunks.iter().enumerate().map(|(rank, chunk)| {
            let rows = chunk.rows as usize;
            let sets = num_sets(Operands::set_bytes(of_rank, rows));
            let seed = 10 + rank as u64;
            Operands::new(self.gpu(rank), &self.streams[rank], Layout::Nt, of_rank, rows, sets, seed)
        });
        made.collect()
    }
}

/// What every rank passes to call `call`.
pub fn matrices(operands: &[Operands], call: usize) -> Vec<RankMatrices> {
    operands
        .iter()
        .map(|operands| {
            let [a, b, d] = operands.args(call);
            RankMatrices { a, b, d }
        })
        .collect()
}
