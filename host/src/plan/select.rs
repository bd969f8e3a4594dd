//! Which compiled kernel a plain GEMM takes, and whether it cuts tiles along K. Pure: what can run is one question
//! (`eligible`), what is best another (`choose`).

use std::cell::Cell;

use crate::kernels::collective::result::whole_steps;
use crate::kernels::entries::{ENTRIES, Entry, Op};
use crate::kernels::schedule::split_k::all_given;

pub(crate) use super::cost::Work;
use super::variant::{MIDDLE_TILE, SHARED_TILES, SMALL_TILE, TURNS_TILE, Variant, WAVE_TILES, main_tile};

/// Whether tiles of a plain GEMM may be cut along K, so that every SM has the same work.
///
/// A cut tile is added up from parts. Which tiles are cut, and in which order their parts are added, depends on the shape, the
/// number of SMs, the tile and the raster group alone: the same bits in every call, but not the bits of an uncut tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SplitK {
    /// Where it should be faster.
    #[default]
    Auto,
    /// Never: every element of D is one sum in the order of K, whatever the number of SMs.
    Never,
    /// Into parts of the last wave's tiles, wherever the tiles are no whole number of waves and there is memory for it, faster or
    /// not.
    Always,
    /// Into runs of equal length, one a CTA, over all tiles, where these are no whole number of waves, have at most four rows, and
    /// at least two stages a CTA; as [`Self::Always`] elsewhere.
    Runs,
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

/// Fewest stages of a run.
const LEAST_RUN: u64 = 2;

/// Most rows of tiles that are cut into runs. With more, CTAs that are not at the same k would take B from memory several times;
/// measured at 16 rows: slower than uncut.
const MOST_ABREAST: u64 = 4;

/// What is cut: so many tiles into so many parts each, or all into runs, so many tiles abreast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub tiles: u32,
    pub parts: u32,
    pub abreast: u32,
}

impl Cut {
    pub const NONE: Self = Self::into_parts(0, 1);

    pub const fn into_parts(tiles: u32, parts: u32) -> Self {
        Self { tiles, parts, abreast: 0 }
    }

    pub const fn into_runs(abreast: u32) -> Self {
        Self { tiles: 0, parts: 1, abreast }
    }

    /// Whether any tile may be cut.
    #[cfg(test)]
    pub fn is_some(self) -> bool {
        self.tiles > 0 || self.abreast > 0
    }
}

/// A kernel, and what it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub entry: &'static Entry,
    pub cut: Cut,
}

impl Work {
    /// Parts that a plan has room for: as much memory as one main tile a CTA, to the byte, whatever the tile.
    pub fn room(ctas: u32, entry: &Entry) -> u32 {
        let [rows, cols] = entry.tile_extent();
        ctas.saturating_mul(ROOM_A_CTA / (rows * cols))
    }

    /// Ways to cut, if waves are not full: the last wave from two parts of each of its tiles up; everything into runs.
    fn cuts(&self, entry: &Entry, split_k: SplitK) -> impl Iterator<Item = Cut> {
        let tiles = if entry.splits { (self.tiles(entry) % u64::from(self.ctas)) as u32 } else { 0 };
        let most = self.k_tiles(entry).min(u64::from(MOST_PARTS)) as u32;
        let room = Self::room(self.ctas, entry);
        let runs = (tiles > 0).then(|| self.abreast(entry)).flatten();
        let (takes_parts, takes_runs) = match split_k {
            SplitK::Never => (false, false),
            SplitK::Auto => (true, true),
            SplitK::Always => (true, false),
            SplitK::Runs => (runs.is_none(), true),
        };
        let parts = (2..=most).filter(move |parts| takes_parts && tiles > 0 && all_given(tiles, *parts) <= room);
        let runs = runs.filter(|_| takes_runs).map(Cut::into_runs);
        parts.map(move |parts| Cut::into_parts(tiles, parts)).chain(runs)
    }

    /// Tiles abreast, where everything can be cut into runs of at least [`LEAST_RUN`] stages. Each CTA gives one part away at most,
    /// and there is room for one tile a CTA.
    fn abreast(&self, entry: &Entry) -> Option<u32> {
        let [rows, _] = entry.tile_extent();
        let abreast = u64::from(self.m.div_ceil(rows));
        let stages = self.tiles(entry) * self.k_tiles(entry);
        let can = abreast <= MOST_ABREAST.min(u64::from(self.ctas))
            && u32::try_from(stages).is_ok()
            && stages >= LEAST_RUN * u64::from(self.ctas);
        can.then_some(abreast as u32)
    }

    /// Whether a call of so many rows or fewer may cut tiles.
    pub fn may_split(&self, entry: &Entry, split_k: SplitK) -> bool {
        split_k != SplitK::Never && entry.splits && self.m > 0 && self.n > 0 && self.k_tiles(entry) >= 2
    }
}

/// The kernels that can compute products of this variant, those of `op`, the main one first; only the one with tile `tile` if
/// there is a wish.
pub(crate) fn eligible(op: Op, variant: Variant, tile: Option<[u32; 2]>) -> impl Iterator<Item = &'static Entry> {
    let main = main_tile(op, variant.input);
    let others = [TURNS_TILE, MIDDLE_TILE, SMALL_TILE, SHARED_TILES[1], SHARED_TILES[0]]
        .into_iter()
        .chain(WAVE_TILES)
        .filter(move |tile| *tile != main);
    let wanted = move |entry: &&Entry| tile.is_none_or(|tile| tile == entry.tile_extent());
    std::iter::once(main).chain(others).filter_map(move |tile| variant.entry_of(op, tile)).filter(wanted)
}

/// Whether a kernel can store `n` columns of D: that of consumers in turns stores rows in whole steps of 16 bytes alone.
pub(crate) fn can_store(entry: &Entry, n: u32) -> bool {
    entry.op != Op::GemmPingPong || whole_steps(n, entry.output.bytes()) == n
}

/// Rows at which [`taken`] asks what a call takes: in steps of 8 rows as far as boxes are cut to them and tiles are few, then wider.
fn sampled_rows(max_m: u32) -> impl Iterator<Item = u32> {
    let steps = [(8, 1024), (64, 16_384), (1 << 14, 1 << 19)];
    let rows = steps.into_iter().flat_map(|(step, end): (u32, u32)| (0..end / step).map(move |i| (i + 1) * step));
    std::iter::once(1).chain(rows).filter(move |m| *m < max_m).chain([max_m])
}

/// Those of `entries` that calls of up to `most.m` rows take: what a plan compiles. A call of rows between those that are asked for
/// chooses among them.
pub(crate) fn taken(entries: Vec<&'static Entry>, most: Work, split_k: SplitK) -> Vec<&'static Entry> {
    let mut is_taken = vec![false; entries.len()];
    for m in sampled_rows(most.m) {
        let choice = choose(&entries, Work { m, ..most }, split_k);
        let at = choice.and_then(|choice| entries.iter().position(|entry| entry.name == choice.entry.name));
        if let Some(is_taken) = is_taken.get_mut(at.unwrap_or(0)) {
            *is_taken = true;
        }
    }
    entries.into_iter().zip(is_taken).filter_map(|(entry, is_taken)| is_taken.then_some(entry)).collect()
}

/// The kernels that a plan chooses from, and what it chose last: calls of one plan mostly have the same rows.
#[derive(Debug)]
pub(crate) struct Selection {
    pub entries: Vec<&'static Entry>,
    split_k: SplitK,
    last: Cell<Option<(Work, Choice)>>,
}

impl Selection {
    pub fn new(entries: Vec<&'static Entry>, split_k: SplitK) -> Self {
        Self { entries, split_k, last: Cell::new(None) }
    }

    /// The best for a call; none if there is no kernel.
    pub fn choose(&self, work: Work) -> Option<Choice> {
        match self.last.get() {
            Some((of, choice)) if of == work => Some(choice),
            _ => {
                let choice = choose(&self.entries, work, self.split_k)?;
                self.last.set(Some((work, choice)));
                Some(choice)
            }
        }
    }
}

/// The best of `entries`, which are not none, for a call.
pub(crate) fn choose(entries: &[&'static Entry], work: Work, split_k: SplitK) -> Option<Choice> {
    let mut best: Option<(f64, Choice)> = None;
    let some_splits = entries.iter().any(|entry| entry.splits);
    for &entry in entries {
        // Who wants cuts does not want a kernel that has none, if there is another.
        let stays_whole = work.cuts(entry, split_k).next().is_none() && (entry.splits || !some_splits);
        let may_stay_whole = matches!(split_k, SplitK::Auto | SplitK::Never) || stays_whole;
        let whole = may_stay_whole.then_some(Cut::NONE);
        for cut in whole.into_iter().chain(work.cuts(entry, split_k)) {
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
    use crate::kernels::config::Element;

    fn chosen(variant: Variant, work: Work, split_k: SplitK) -> Choice {
        Selection::new(eligible(Op::Gemm, variant, None).collect(), split_k).choose(work).unwrap()
    }

    fn on_h200(m: u32, n: u32, k: u32) -> Choice {
        chosen(Variant::default(), Work { m, n, k, ctas: 132 }, SplitK::Auto)
    }

    #[test]
    fn whole_waves_are_not_cut() {
        let choice = on_h200(128 * 12, 256 * 11, 4096);
        assert_eq!((choice.entry.tile_extent(), choice.cut), ([128, 256], Cut::NONE));
    }

    /// The table of cuts in `docs/performance.md`.
    #[test]
    fn what_was_measured_to_be_fastest_is_chosen() {
        for (m, n, k, tile, is_cut) in [
            (8192, 1280, 8192, [128, 128], false),
            (8192, 7168, 8192, [128, 176], false),
            (8192, 12288, 1536, [128, 176], false),
            (8192, 6144, 12288, [128, 176], false),
            (2048, 4608, 12288, TURNS_TILE, false),
            (2048, 12288, 1536, TURNS_TILE, false),
            (512, 12288, 6144, TURNS_TILE, false),
            (512, 4608, 12288, [128, 144], false),
            (512, 12288, 1536, TURNS_TILE, false),
            (512, 6144, 12288, TURNS_TILE, false),
            (128, 12288, 6144, [64, 192], false),
            (128, 4608, 12288, [64, 128], true),
            (128, 6144, 12288, [64, 96], false),
            (128, 12288, 1536, [64, 192], false),
            (64, 8192, 8192, [64, 64], false),
            (16, 12288, 6144, [64, 96], false),
            (16, 6144, 12288, [64, 64], true),
            (16, 12288, 1536, [64, 96], false),
            (1, 4608, 12288, [64, 64], true),
            (1, 12288, 6144, [64, 96], false),
        ] {
            let choice = on_h200(m, n, k);
            assert_eq!((choice.entry.tile_extent(), choice.cut.is_some()), (tile, is_cut), "{m}×{n}×{k}");
        }
    }

    #[test]
    fn a_quarter_of_a_wave_is_not_left_to_a_quarter_of_the_sms() {
        // Layout tn has the main tile and that of consumers in turns; with results in f32 only the main one.
        let variant = Variant::new(crate::Layout::Tn, Element::Bf16, Element::F32);
        for ([m, n, k], cut) in
            [([2048, 4608, 12288], Cut::into_parts(24, 5)), ([8192, 1280, 8192], Cut::into_parts(56, 2))]
        {
            let choice = chosen(variant, Work { m, n, k, ctas: 132 }, SplitK::Auto);
            assert_eq!((choice.entry.tile_extent(), choice.cut), ([128, 256], cut), "{m}×{n}×{k}");
        }
    }

    #[test]
    fn most_of_a_wave_is_left_whole() {
        assert_eq!(on_h200(4096, 4096, 4096).cut, Cut::NONE);
        assert_eq!(on_h200(8192, 8192, 8192).cut, Cut::NONE);
    }

    #[test]
    fn few_rows_keep_memory_busy() {
        for [m, n, k] in [1, 16, 64].into_iter().flat_map(|m| [[m, 4608, 12288], [m, 12288, 6144], [m, 6144, 12288]]) {
            let work = Work { m, n, k, ctas: 132 };
            let Choice { entry, cut } = on_h200(m, n, k);
            assert_eq!(entry.tile[0], 64, "{work:?}");
            // 96 SMs take what memory delivers.
            let units = work.tiles(entry) - u64::from(cut.tiles) + u64::from(cut.tiles * cut.parts);
            assert!(units >= 96 || cut.abreast > 0, "{work:?}: {} by {cut:?}", entry.name);
        }
    }

    #[test]
    fn operands_of_8_bits_take_their_main_tile() {
        let variant = Variant::new(crate::Layout::Nt, Element::E4m3, Element::Bf16);
        for [m, n, k] in [[8192, 8192, 8192], [4096, 4096, 4096], [8192, 8192, 3584]] {
            let choice = chosen(variant, Work { m, n, k, ctas: 132 }, SplitK::Auto);
            assert_eq!(choice.entry.tile_extent(), [128, 256], "{m}×{n}×{k}");
        }
    }

    #[test]
    fn what_was_chosen_last_is_not_taken_for_other_calls() {
        let selection = Selection::new(eligible(Op::Gemm, Variant::default(), None).collect(), SplitK::Auto);
        let works = [16, 8192, 16, 128].map(|m| Work { m, n: 4608, k: 12288, ctas: 132 });
        for work in works {
            assert_eq!(selection.choose(work), choose(&selection.entries, work, SplitK::Auto), "{work:?}");
            assert_eq!(selection.choose(work), choose(&selection.entries, work, SplitK::Auto), "{work:?}, again");
        }
    }

    #[test]
    fn a_plan_compiles_what_its_calls_take() {
        let taken = |most: Work, split_k| taken(eligible(Op::Gemm, Variant::default(), None).collect(), most, split_k);
        for [max_m, n, k] in
            [[0, 64, 64], [1, 4608, 12288], [100, 12288, 6144], [700, 4608, 12288], [20_000, 1280, 512]]
        {
            let most = Work { m: max_m, n, k, ctas: 132 };
            let entries = taken(most, SplitK::Auto);
            // Whatever a call has of rows, nothing that was left out would be faster by more than a little.
            for m in (1..=max_m).step_by(1 + max_m as usize / 500) {
                let work = Work { m, ..most };
                let best = on_h200(m, n, k);
                let choice = choose(&entries, work, SplitK::Auto).unwrap();
                let (cost, least) = (work.cost(choice.entry, choice.cut), work.cost(best.entry, best.cut));
                assert!(cost <= 1.02 * least, "{work:?}: {} instead of {}", choice.entry.name, best.entry.name);
            }
        }
        let few = Work { m: 16, n: 12288, k: 6144, ctas: 132 };
        assert!(taken(few, SplitK::Auto).len() <= 3, "{:?}", taken(few, SplitK::Auto));
        assert_eq!(taken(Work { m: u32::MAX, ..few }, SplitK::Never).first().unwrap().tile_extent(), [128, 256]);
    }

    #[test]
    fn short_sums_are_not_worth_sharing() {
        assert_eq!(on_h200(128, 256, 64).cut, Cut::NONE);
        assert_eq!(on_h200(300, 300, 100).cut, Cut::NONE);
    }

    #[test]
    fn never_and_always_mean_it() {
        // No tile fills whole waves.
        let work = Work { m: 200, n: 300, k: 256, ctas: 7 };
        for variant in Variant::supported(Op::Gemm) {
            assert_eq!(chosen(variant, work, SplitK::Never).cut, Cut::NONE);
            let splits = variant.entry(Op::Gemm).unwrap().splits;
            assert_eq!(chosen(variant, work, SplitK::Always).cut.is_some(), splits, "{variant}");
        }
    }

    #[test]
    fn runs_are_for_few_rows_of_tiles() {
        let cut = |[m, n, k]: [u32; 3], tile| {
            let entries: Vec<_> = eligible(Op::Gemm, Variant::default(), Some(tile)).collect();
            choose(&entries, Work { m, n, k, ctas: 132 }, SplitK::Runs).unwrap().cut
        };
        assert_eq!(cut([128, 6144, 12288], [128, 128]), Cut::into_runs(1));
        assert_eq!(cut([512, 4608, 12288], [128, 128]), Cut::into_runs(4));
        assert_eq!(cut([512, 4608, 12288], [64, 128]).abreast, 0, "eight rows of tiles");
        assert_eq!(cut([128, 128, 64], [128, 128]), Cut::NONE, "one stage for 132 CTAs");
        assert_eq!(cut([128, 128 * 132, 4096], [128, 128]), Cut::NONE, "a whole wave");
    }

    #[test]
    fn a_wish_for_a_tile_is_met() {
        let tiles = |tile| eligible(Op::Gemm, Variant::default(), tile).map(|e| e.tile_extent()).collect::<Vec<_>>();
        assert_eq!(tiles(Some([64, 128])), [[64, 128]]);
        assert_eq!(tiles(Some([128, 256])), [[128, 256]]);
        let few = [[128, 256], [128, 192], [128, 128], [64, 128], [128, 64], [64, 64]];
        assert_eq!(tiles(None), [few.as_slice(), &WAVE_TILES].concat());
    }

    #[test]
    fn many_waves_are_multiplied_in_turns() {
        for [m, n, k] in [[8192, 8192, 1024], [16384, 8192, 2048], [8192, 12288, 1536], [8192, 8192, 8192]] {
            assert_eq!(on_h200(m, n, k).entry.op, Op::GemmPingPong, "{m}×{n}×{k}");
        }
        let f32_out = Variant::new(crate::Layout::Nt, Element::Bf16, Element::F32);
        let choice = chosen(f32_out, Work { m: 8192, n: 8192, k: 1024, ctas: 132 }, SplitK::Auto);
        assert_eq!(choice.entry.tile_extent(), [128, 256]);
    }

    #[test]
    fn rows_that_end_within_a_step_are_not_for_consumers_in_turns() {
        let turns = Variant::default().entry_of(Op::Gemm, TURNS_TILE).unwrap();
        assert!(can_store(turns, 8192) && can_store(turns, 8) && !can_store(turns, 8190) && !can_store(turns, 4));
        assert!(can_store(Variant::default().entry(Op::Gemm).unwrap(), 4));
    }

    #[test]
    fn what_is_given_away_fits_the_room_for_it() {
        for entry in eligible(Op::Gemm, Variant::default(), None) {
            for (m, n, ctas) in [(2048, 4608, 132), (1, 8, 132), (1 << 20, 257, 7), (64, 12288, 33)] {
                let work = Work { m, n, k: u32::MAX, ctas };
                for cut in work.cuts(entry, SplitK::Auto) {
                    let given = if cut.abreast > 0 { ctas } else { all_given(cut.tiles, cut.parts) };
                    assert!(given <= Work::room(ctas, entry), "{work:?}: {cut:?}");
                }
            }
        }
    }
}
