//! Which compiled kernel a plain GEMM takes, and whether it cuts tiles along K. Pure: what can run is one question
//! ([`eligible`]), what is best another ([`choose`]).

use crate::kernels::entries::{Entry, Op};

use super::variant::{SMALL_TILE, Variant, main_tile};

/// Whether tiles of a plain GEMM may be cut along K, so that every SM has the same work.
///
/// A cut tile is added up from parts, in an order that depends on the shape and the number of SMs alone: the same bits in
/// every call, but not the bits of an uncut tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SplitK {
    /// Where it should be faster.
    #[default]
    Auto,
    /// Never: every element of D is one sum in the order of K, whatever the number of SMs.
    Never,
    /// Wherever the tiles are no whole number of waves, faster or not.
    Always,
}

/// A kernel, and how many tiles it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub entry: &'static Entry,
    pub split_tiles: u32,
}

/// What a tile costs while all SMs are busy, in nanoseconds.
struct TileCost {
    tile: [u32; 2],
    /// One stage along K.
    stage: f64,
    /// What is not hidden behind the next tile: the way of the sums to shared memory.
    tail: f64,
    /// Passing the sums of a tile to another CTA.
    share: f64,
}

/// NVIDIA H200, driver 580.159.04, 2026-11-29, under sustained load: see `docs/performance.md`.
const COSTS: [TileCost; 3] = [
    TileCost { tile: [128, 256], stage: 650.0, tail: 1200.0, share: 3500.0 },
    TileCost { tile: [64, 128], stage: 240.0, tail: 700.0, share: 1500.0 },
    TileCost { tile: [128, 128], stage: 340.0, tail: 900.0, share: 2000.0 },
];

/// Bytes that device memory delivers in a nanosecond.
const MEMORY_BYTES_PER_NS: f64 = 4300.0;

/// Shape of a call and the CTAs it runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub ctas: u32,
}

impl Work {
    fn tiles(&self, entry: &Entry) -> u64 {
        let [rows, cols] = entry.tile_extent();
        u64::from(self.m.div_ceil(rows)) * u64::from(self.n.div_ceil(cols))
    }

    fn k_tiles(&self, entry: &Entry) -> u64 {
        u64::from(self.k.div_ceil(entry.tile[2]))
    }

    /// Tiles to cut so that every CTA has the same work: the last wave that is not full, and the whole wave before it, so
    /// that few CTAs share a tile. None if the tiles are whole waves, or if they are too many stages to count.
    pub fn split_tiles(&self, entry: &Entry) -> u32 {
        let (tiles, ctas) = (self.tiles(entry), u64::from(self.ctas));
        let rest = tiles % ctas;
        if rest == 0 || !entry.splits {
            return 0;
        }
        let split = if tiles > ctas { rest + ctas } else { tiles };
        if self.k_tiles(entry) < 2 || split * self.k_tiles(entry) > u64::from(u32::MAX) { 0 } else { split as u32 }
    }

    /// Whether a call of so many rows or fewer may cut tiles.
    pub fn may_split(&self, entry: &Entry, split_k: SplitK) -> bool {
        split_k != SplitK::Never && entry.splits && self.m > 0 && self.n > 0 && self.k_tiles(entry) >= 2
    }

    /// Expected time in nanoseconds with `split_tiles` tiles cut.
    fn cost(&self, entry: &Entry, split_tiles: u32) -> f64 {
        let of = COSTS.iter().find(|cost| cost.tile == entry.tile_extent()).unwrap_or(&COSTS[0]);
        let (tiles, k_tiles, ctas) = (self.tiles(entry), self.k_tiles(entry) as f64, f64::from(self.ctas));
        let split = f64::from(split_tiles);
        let whole = (tiles - u64::from(split_tiles)).div_ceil(u64::from(self.ctas)) as f64;
        let mut time = whole * (k_tiles * of.stage + of.tail);
        if split_tiles > 0 {
            let sharers = (ctas / split).ceil().max(2.0);
            time += (split * k_tiles / ctas).ceil() * of.stage + of.tail + (sharers - 1.0) * of.share;
        }
        let elements = f64::from(self.n) * f64::from(self.k) * f64::from(entry.input_b.bytes())
            + f64::from(self.m) * f64::from(self.k) * f64::from(entry.input.bytes())
            + f64::from(self.m) * f64::from(self.n) * f64::from(entry.output.bytes());
        time.max(elements / MEMORY_BYTES_PER_NS + of.tail)
    }
}

/// The kernels that can compute plain products of this variant, the main one first; only the one with tile `tile` if
/// there is a wish.
pub(crate) fn eligible(variant: Variant, tile: Option<[u32; 2]>) -> impl Iterator<Item = &'static Entry> {
    let tiles = [main_tile(Op::Gemm, variant.input), SMALL_TILE, [128, 128]];
    let wanted = move |entry: &&Entry| tile.is_none_or(|tile| tile == entry.tile_extent());
    tiles.into_iter().filter_map(move |tile| variant.entry_of(Op::Gemm, tile)).filter(wanted)
}

/// The best of `entries`, which are not none, for a call.
pub(crate) fn choose(entries: &[&'static Entry], work: Work, split_k: SplitK) -> Option<Choice> {
    let mut best: Option<(f64, Choice)> = None;
    for &entry in entries {
        let all = work.split_tiles(entry);
        let cuts: &[u32] = match split_k {
            SplitK::Never => &[0],
            SplitK::Always => &[all],
            SplitK::Auto => &[0, all],
        };
        for &split_tiles in cuts {
            let cost = work.cost(entry, split_tiles);
            // Of equals the first: the main tile, whole.
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, Choice { entry, split_tiles }));
            }
        }
    }
    best.map(|(_, choice)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variant: Variant, work: Work, split_k: SplitK) -> Choice {
        choose(&eligible(variant, None).collect::<Vec<_>>(), work, split_k).unwrap()
    }

    fn on_h200(m: u32, n: u32, k: u32) -> Choice {
        chosen(Variant::default(), Work { m, n, k, ctas: 132 }, SplitK::Auto)
    }

    #[test]
    fn whole_waves_are_not_cut() {
        let choice = on_h200(128 * 12, 256 * 11, 4096);
        assert_eq!((choice.entry.tile_extent(), choice.split_tiles), ([128, 256], 0));
    }

    #[test]
    fn a_quarter_of_a_wave_is_not_left_to_a_quarter_of_the_sms() {
        let choice = on_h200(2048, 4608, 12288);
        assert_eq!((choice.entry.tile_extent(), choice.split_tiles), ([128, 256], 24 + 132));
        let choice = on_h200(8192, 1280, 8192);
        assert_eq!((choice.entry.tile_extent(), choice.split_tiles), ([128, 256], 56 + 132));
    }

    #[test]
    fn few_rows_take_the_small_tile_and_all_sms() {
        for m in [1, 16, 64] {
            let choice = on_h200(m, 4608, 12288);
            assert_eq!((choice.entry.tile_extent(), choice.split_tiles), ([64, 128], 36), "{m} rows");
        }
    }

    #[test]
    fn short_sums_are_not_worth_sharing() {
        assert_eq!(on_h200(128, 256, 64).split_tiles, 0);
        assert_eq!(on_h200(300, 300, 100).split_tiles, 0);
    }

    #[test]
    fn never_and_always_mean_it() {
        let work = Work { m: 200, n: 300, k: 256, ctas: 5 };
        for variant in Variant::supported(Op::Gemm) {
            assert_eq!(chosen(variant, work, SplitK::Never).split_tiles, 0);
            let splits = variant.entry(Op::Gemm).unwrap().splits;
            assert_eq!(chosen(variant, work, SplitK::Always).split_tiles > 0, splits, "{variant}");
        }
    }

    #[test]
    fn a_wish_for_a_tile_is_met() {
        let tiles = |tile| eligible(Variant::default(), tile).map(|e| e.tile_extent()).collect::<Vec<_>>();
        assert_eq!(tiles(Some([64, 128])), [[64, 128]]);
        assert_eq!(tiles(Some([128, 256])), [[128, 256]]);
        assert_eq!(tiles(None), [[128, 256], [64, 128]]);
    }

    #[test]
    fn counts_stay_below_what_a_kernel_can_count() {
        let entry = Variant::default().entry(Op::Gemm).unwrap();
        let work = Work { m: 1 << 20, n: 257, k: u32::MAX, ctas: 132 };
        assert_eq!(work.split_tiles(entry), 0);
    }
}
