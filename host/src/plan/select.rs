//! Which compiled kernel a plain GEMM takes, and whether it cuts tiles along K. Pure: what can run is one question
//! (`eligible`), what is best another (`choose`).

use crate::kernels::entries::{ENTRIES, Entry, Op};
use crate::kernels::schedule::split_k::all_given;

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
    /// Wherever the tiles are no whole number of waves and there is memory for it, faster or not.
    Always,
}

/// Elements of sums that a plan has room for, for each CTA: a whole number of tiles of every kind.
const ROOM_A_CTA: u32 = 128 * 256;

const _: () = {
    let mut at = 0;
    while at < ENTRIES.len() {
        let [rows, cols] = ENTRIES[at].tile_extent();
        assert!(
            !ENTRIES[at].splits || ROOM_A_CTA.is_multiple_of(rows * cols),
            "words would lie among other tiles' sums"
        );
        at += 1;
    }
};

/// Most parts of a tile.
const MOST_PARTS: u32 = 8;

/// How many tiles are cut, and into how many parts each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub tiles: u32,
    pub parts: u32,
}

impl Cut {
    pub const NONE: Self = Self { tiles: 0, parts: 1 };

    /// Parts that are given away.
    fn given(self) -> u32 {
        all_given(self.tiles, self.parts)
    }
}

/// A kernel, and what it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub entry: &'static Entry,
    pub cut: Cut,
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
    TileCost { tile: [128, 256], stage: 740.0, tail: 1200.0, share: 3000.0 },
    TileCost { tile: [64, 128], stage: 245.0, tail: 700.0, share: 1200.0 },
    TileCost { tile: [128, 128], stage: 340.0, tail: 900.0, share: 2000.0 },
];

/// Bytes that device memory delivers in a nanosecond.
const MEMORY_BYTES_PER_NS: f64 = 4300.0;

/// Bytes that one SM takes from device memory in a nanosecond.
const SM_BYTES_PER_NS: f64 = 45.0;

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

    /// Parts that a plan has room for: as much memory as one main tile a CTA, to the byte, whatever the tile.
    pub fn room(ctas: u32, entry: &Entry) -> u32 {
        let [rows, cols] = entry.tile_extent();
        ctas.saturating_mul(ROOM_A_CTA / (rows * cols))
    }

    /// Ways to cut the last wave, if it is not full: from two parts of each of its tiles up.
    fn cuts(&self, entry: &Entry) -> impl Iterator<Item = Cut> {
        let tiles = if entry.splits { (self.tiles(entry) % u64::from(self.ctas)) as u32 } else { 0 };
        let most = self.k_tiles(entry).min(u64::from(MOST_PARTS)) as u32;
        let room = Self::room(self.ctas, entry);
        (2..=most).map(move |parts| Cut { tiles, parts }).filter(move |cut| tiles > 0 && cut.given() <= room)
    }

    /// Whether a call of so many rows or fewer may cut tiles.
    pub fn may_split(&self, entry: &Entry, split_k: SplitK) -> bool {
        split_k != SplitK::Never && entry.splits && self.m > 0 && self.n > 0 && self.k_tiles(entry) >= 2
    }

    /// Expected time in nanoseconds.
    fn cost(&self, entry: &Entry, cut: Cut) -> f64 {
        let of = COSTS.iter().find(|cost| cost.tile == entry.tile_extent()).unwrap_or(&COSTS[0]);
        let (k_tiles, ctas) = (self.k_tiles(entry), u64::from(self.ctas));
        let waves = (self.tiles(entry) - u64::from(cut.tiles)).div_ceil(ctas) as f64;
        let mut time = waves * (k_tiles as f64 * of.stage + of.tail);
        if cut.tiles > 0 {
            let rounds = u64::from(cut.tiles * cut.parts).div_ceil(ctas) as f64;
            let stages = k_tiles.div_ceil(u64::from(cut.parts)) as f64;
            time += rounds * stages * of.stage + of.tail + f64::from(cut.parts) * of.share;
        }
        let elements = f64::from(self.n) * f64::from(self.k) * f64::from(entry.input_b.bytes())
            + f64::from(self.m) * f64::from(self.k) * f64::from(entry.input.bytes())
            + f64::from(self.m) * f64::from(self.n) * f64::from(entry.output.bytes());
        let units = self.tiles(entry) - u64::from(cut.tiles) + u64::from(cut.tiles * cut.parts);
        let bytes_per_ns = MEMORY_BYTES_PER_NS.min(SM_BYTES_PER_NS * units.min(ctas) as f64);
        time.max(elements / bytes_per_ns + of.tail + f64::from(cut.parts - 1) * of.share)
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
        let whole = (split_k != SplitK::Always || work.cuts(entry).next().is_none()).then_some(Cut::NONE);
        let cuts = work.cuts(entry).filter(|_| split_k != SplitK::Never);
        for cut in whole.into_iter().chain(cuts) {
            let cost = work.cost(entry, cut);
            // Of equals the first: the main tile, whole, in few parts.
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, Choice { entry, cut }));
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
        assert_eq!((choice.entry.tile_extent(), choice.cut), ([128, 256], Cut::NONE));
    }

    #[test]
    fn a_quarter_of_a_wave_is_not_left_to_a_quarter_of_the_sms() {
        let choice = on_h200(2048, 4608, 12288);
        assert_eq!((choice.entry.tile_extent(), choice.cut), ([128, 256], Cut { tiles: 24, parts: 5 }));
        let choice = on_h200(8192, 1280, 8192);
        assert_eq!((choice.entry.tile_extent(), choice.cut), ([128, 256], Cut { tiles: 56, parts: 2 }));
    }

    #[test]
    fn most_of_a_wave_is_left_whole() {
        assert_eq!(on_h200(4096, 4096, 4096).cut, Cut::NONE);
        assert_eq!(on_h200(8192, 8192, 8192).cut, Cut::NONE);
    }

    #[test]
    fn few_rows_take_the_small_tile() {
        for m in [1, 16, 64] {
            let choice = on_h200(m, 4608, 12288);
            assert_eq!(choice.entry.tile_extent(), [64, 128], "{m} rows");
            assert!(choice.cut.tiles == 36 && choice.cut.parts >= 3, "{m} rows: {:?}", choice.cut);
        }
    }

    #[test]
    fn short_sums_are_not_worth_sharing() {
        assert_eq!(on_h200(128, 256, 64).cut, Cut::NONE);
        assert_eq!(on_h200(300, 300, 100).cut, Cut::NONE);
    }

    #[test]
    fn never_and_always_mean_it() {
        let work = Work { m: 200, n: 300, k: 256, ctas: 5 };
        for variant in Variant::supported(Op::Gemm) {
            assert_eq!(chosen(variant, work, SplitK::Never).cut, Cut::NONE);
            let splits = variant.entry(Op::Gemm).unwrap().splits;
            assert_eq!(chosen(variant, work, SplitK::Always).cut.tiles > 0, splits, "{variant}");
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
    fn what_is_given_away_fits_the_room_for_it() {
        for entry in eligible(Variant::default(), None) {
            for (m, n, ctas) in [(2048, 4608, 132), (1, 8, 132), (1 << 20, 257, 7), (64, 12288, 33)] {
                let work = Work { m, n, k: u32::MAX, ctas };
                assert!(work.cuts(entry).all(|cut| cut.given() <= Work::room(ctas, entry)), "{work:?}");
            }
        }
    }
}
