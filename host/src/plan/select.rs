//! Which compiled kernel a plain GEMM takes, and whether it cuts tiles along K or into fewer columns. Pure: what can run is
//! one question (`eligible`), what is best another (`choose`).

use std::cell::Cell;

use crate::kernels::collective::result::whole_steps;
use crate::kernels::entries::{ENTRIES, Entry, Op};
use crate::kernels::schedule::split_k::all_given;

pub(crate) use super::cost::Work;
pub(crate) use super::cut::{COLS_STEP, Cut, MayCut, SplitK, narrows};
use super::variant::{MIDDLE_TILE, SHARED_TILES, SMALL_TILE, TURNS_TILE, Variant, WAVE_TILES, main_tile};

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

/// Most waves that narrower tiles are made to fill.
const MOST_NARROW_WAVES: u32 = 2;

/// A kernel, and what it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub entry: &'static Entry,
    pub cut: Cut,
}

impl Choice {
    /// Rows and columns of the call's tiles.
    pub fn tile_extent(&self) -> [u32; 2] {
        self.cut.tile_of(self.entry)
    }
}

impl Work {
    /// Parts that a plan has room for: as much memory as one main tile a CTA, to the byte, whatever the tile.
    pub fn room(ctas: u32, entry: &Entry) -> u32 {
        let [rows, cols] = entry.tile_extent();
        ctas.saturating_mul(ROOM_A_CTA / (rows * cols))
    }

    /// Ways to cut, if waves are not full: the last wave from two parts of each of its tiles up; everything into runs; into
    /// narrower tiles.
    fn cuts(&self, entry: &Entry, may: MayCut) -> impl Iterator<Item = Cut> + use<> {
        let fixed = may.fixed(entry);
        let tiles = if self.may_split(entry, may) {
            (self.tiles(entry.tile_extent()) % u64::from(self.ctas)) as u32
        } else {
            0
        };
        let most = self.k_tiles(entry).min(u64::from(MOST_PARTS)) as u32;
        let room = Self::room(self.ctas, entry);
        let runs = (tiles > 0).then(|| self.abreast(entry)).flatten();
        let (takes_parts, takes_runs) = match may.split_k {
            SplitK::Never => (false, false),
            SplitK::Auto => (true, true),
            SplitK::Always => (true, false),
            SplitK::Runs => (runs.is_none(), true),
        };
        let parts = (2..=most).filter(move |parts| takes_parts && tiles > 0 && all_given(tiles, *parts) <= room);
        let runs = runs.filter(|_| takes_runs).map(Cut::into_runs);
        let takes_columns = fixed.is_none() && matches!(may.split_k, SplitK::Auto | SplitK::Never);
        let columns = takes_columns.then(|| self.narrower(entry)).into_iter().flatten().map(Cut::into_columns);
        parts.map(move |parts| Cut::into_parts(tiles, parts)).chain(runs).chain(columns).chain(fixed)
    }

    /// Columns of tiles that fill one wave and two with as many tiles as there is room for, where they are fewer than the kernel's.
    fn narrower(&self, entry: &Entry) -> impl Iterator<Item = u32> + use<> {
        let ([rows, cols], Self { m, n, ctas, .. }) = (entry.tile_extent(), *self);
        let waves = 1..=if narrows(entry) { MOST_NARROW_WAVES } else { 0 };
        let abreast = m.div_ceil(rows).max(1);
        let fewest = move |waves: u32| {
            // Most tiles of a row of them.
            let most = waves.saturating_mul(ctas) / abreast;
            (most > 0).then(|| n.div_ceil(most).checked_next_multiple_of(COLS_STEP)).flatten()
        };
        waves.filter_map(fewest).filter(move |narrower| (1..cols).contains(narrower))
    }

    /// Tiles abreast, where everything can be cut into runs of at least [`LEAST_RUN`] stages. Each CTA gives one part away at most,
    /// and there is room for one tile a CTA.
    fn abreast(&self, entry: &Entry) -> Option<u32> {
        let [rows, _] = entry.tile_extent();
        let abreast = u64::from(self.m.div_ceil(rows));
        let stages = self.tiles(entry.tile_extent()) * self.k_tiles(entry);
        let can = abreast <= MOST_ABREAST.min(u64::from(self.ctas))
            && u32::try_from(stages).is_ok()
            && stages >= LEAST_RUN * u64::from(self.ctas);
        can.then_some(abreast as u32)
    }

    /// Whether a call of so many rows or fewer may cut tiles along K.
    pub fn may_split(&self, entry: &Entry, may: MayCut) -> bool {
        let is_allowed = may.split_k != SplitK::Never && may.fixed(entry).is_none();
        is_allowed && entry.splits && self.m > 0 && self.n > 0 && self.k_tiles(entry) >= 2
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

/// Rows at which [`taken`] asks what a call takes: in steps of 8 rows as far as boxes are cut to them and tiles are
/// few, then wider.
fn sampled_rows(max_m: u32) -> impl Iterator<Item = u32> {
    let steps = [(8, 1024), (64, 16_384), (1 << 14, 1 << 19)];
    let rows = steps.into_iter().flat_map(|(step, end): (u32, u32)| (0..end / step).map(move |i| (i + 1) * step));
    std::iter::once(1).chain(rows).filter(move |m| *m < max_m).chain([max_m])
}

/// Those of `entries` that calls of up to `most.m` rows take: what a plan compiles. A call of rows between those that are asked for
/// chooses among them.
pub(crate) fn taken(entries: Vec<&'static Entry>, most: Work, may: impl Into<MayCut>) -> Vec<&'static Entry> {
    let may = may.into();
    let mut is_taken = vec![false; entries.len()];
    for m in sampled_rows(most.m) {
        let choice = choose(&entries, Work { m, ..most }, may);
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
    may: MayCut,
    last: Cell<Option<(Work, Choice)>>,
}

impl Selection {
    pub fn new(entries: Vec<&'static Entry>, may: impl Into<MayCut>) -> Self {
        Self { entries, may: may.into(), last: Cell::new(None) }
    }

    /// The best for a call; none if there is no kernel.
    pub fn choose(&self, work: Work) -> Option<Choice> {
        match self.last.get() {
            Some((of, choice)) if of == work => Some(choice),
            _ => {
                let choice = choose(&self.entries, work, self.may)?;
                self.last.set(Some((work, choice)));
                Some(choice)
            }
        }
    }
}

/// The best of `entries`, which are not none, for a call.
pub(crate) fn choose(entries: &[&'static Entry], work: Work, may: impl Into<MayCut>) -> Option<Choice> {
    let may = may.into();
    let mut best: Option<(f64, Choice)> = None;
    let some_splits = entries.iter().any(|entry| entry.splits);
    for &entry in entries {
        // Who wants cuts does not want a kernel that has none, if there is another.
        let stays_whole = work.cuts(entry, may).next().is_none() && (entry.splits || !some_splits);
        let may_stay_whole = matches!(may.split_k, SplitK::Auto | SplitK::Never) || stays_whole;
        let whole = (may_stay_whole && may.fixed(entry).is_none()).then_some(Cut::NONE);
        for cut in whole.into_iter().chain(work.cuts(entry, may)) {
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
    use crate::Layout;
    use crate::kernels::config::Element;

    fn chosen(variant: Variant, work: Work, split_k: SplitK) -> Choice {
        Selection::new(eligible(Op::Gemm, variant, None).collect(), split_k).choose(work).unwrap()
    }

    fn on_h200(m: u32, n: u32, k: u32) -> Choice {
        chosen(Variant::default(), Work { m, n, k, ctas: 132 }, SplitK::Auto)
    }

    /// They read twice the bytes for each product. 64×192 was chosen for margins of 16 and 32 SMs, and took 10 % longer.
    #[test]
    fn calls_of_many_rows_take_no_tiles_of_64() {
        let shapes =
            [(8192, 3584), (8192, 8192), (4096, 14336), (7168, 8192), (12288, 1536), (4608, 12288), (6144, 12288)];
        for (ctas, m, (n, k)) in (68..=132)
            .flat_map(|ctas| [2048, 4096, 8192, 16384].map(|m| (ctas, m)))
            .flat_map(|(ctas, m)| shapes.map(|shape| (ctas, m, shape)))
        {
            let choice = chosen(Variant::default(), Work { m, n, k, ctas }, SplitK::Auto);
            assert_eq!(choice.tile_extent()[0], 128, "{m}×{n}×{k} on {ctas} SMs: {:?}", choice.tile_extent());
        }
    }

    #[test]
    fn whole_waves_are_not_cut() {
        let choice = on_h200(128 * 12, 256 * 11, 4096);
        assert_eq!((choice.entry.tile_extent(), choice.cut), ([128, 256], Cut::NONE));
    }

    /// What a row of the table of cuts says about a choice.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        Whole,
        AlongK,
        Columns(u32),
    }

    /// The table of cuts in `docs/performance.md`.
    #[test]
    fn what_was_measured_to_be_fastest_is_chosen() {
        use Kind::{AlongK, Columns, Whole};
        for (m, n, k, tile, kind) in [
            (8192, 1280, 8192, [128, 160], Whole),
            (8192, 7168, 8192, [128, 176], Whole),
            (8192, 12288, 1536, [128, 176], Whole),
            (8192, 6144, 12288, [128, 176], Whole),
            (2048, 4608, 12288, TURNS_TILE, Whole),
            (2048, 12288, 1536, TURNS_TILE, Whole),
            (512, 12288, 6144, TURNS_TILE, Whole),
            (512, 4608, 12288, [128, 144], Whole),
            (512, 12288, 1536, TURNS_TILE, Whole),
            (512, 6144, 12288, TURNS_TILE, Whole),
            (128, 12288, 6144, [128, 96], Whole),
            (128, 4608, 12288, [64, 96], Whole),
            (128, 6144, 12288, [64, 96], Whole),
            (128, 12288, 1536, [128, 96], Whole),
            (64, 8192, 8192, [64, 64], Whole),
            (16, 12288, 6144, [64, 96], Whole),
            (16, 6144, 12288, [64, 64], Columns(48)),
            (16, 4608, 12288, [64, 64], Columns(40)),
            (16, 12288, 1536, [64, 96], Whole),
            (1, 6144, 12288, [64, 64], Columns(48)),
            (1, 4608, 12288, [64, 64], Columns(40)),
            (1, 12288, 6144, [64, 96], Whole),
        ] {
            let Choice { entry, cut } = on_h200(m, n, k);
            let found = match cut {
                cut if cut.is_along_k() => AlongK,
                Cut { cols: 0, .. } => Whole,
                Cut { cols, .. } => Columns(cols),
            };
            assert_eq!((entry.tile_extent(), found), (tile, kind), "{m}×{n}×{k}");
        }
    }

    /// `docs/performance.md`, "Other layouts".
    #[test]
    fn other_layouts_have_the_tile_between() {
        for (layout, [m, n, k], tile) in [
            (Layout::Tn, [1280, 8192, 8192], MIDDLE_TILE),
            (Layout::Nn, [8192, 1280, 8192], MIDDLE_TILE),
            (Layout::Nn, [8192, 1024, 8192], [128, 256]),
            (Layout::Tn, [7168, 8192, 8192], TURNS_TILE),
            (Layout::Nn, [8192, 8192, 7168], TURNS_TILE),
        ] {
            let variant = Variant::new(layout, Element::Bf16, Element::Bf16);
            let choice = chosen(variant, Work { m, n, k, ctas: 132 }, SplitK::Auto);
            assert_eq!(choice.tile_extent(), tile, "{layout} {m}×{n}×{k}");
        }
    }

    #[test]
    fn a_quarter_of_a_wave_is_not_left_to_a_quarter_of_the_sms() {
        // Layout tn has three tiles; with results in f32 only the main one.
        let variant = Variant::new(Layout::Tn, Element::Bf16, Element::F32);
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
            let units = work.tiles(cut.tile_of(entry)) - u64::from(cut.tiles) + u64::from(cut.tiles * cut.parts);
            assert!(units >= 96 || cut.abreast > 0, "{work:?}: {} by {cut:?}", entry.name);
        }
    }

    #[test]
    fn operands_of_8_bits_take_their_main_tile() {
        let variant = Variant::new(Layout::Nt, Element::E4m3, Element::Bf16);
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
        assert!(!on_h200(128, 256, 64).cut.is_along_k());
        assert!(!on_h200(300, 300, 100).cut.is_along_k());
    }

    #[test]
    fn never_and_always_mean_it() {
        // No tile fills whole waves.
        let work = Work { m: 200, n: 300, k: 256, ctas: 7 };
        for variant in Variant::supported(Op::Gemm) {
            assert!(!chosen(variant, work, SplitK::Never).cut.is_along_k(), "{variant}");
            let splits = variant.entry(Op::Gemm).unwrap().splits;
            assert_eq!(chosen(variant, work, SplitK::Always).cut.is_along_k(), splits, "{variant}");
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
    fn narrower_tiles_fill_waves_and_are_one_sum_in_the_order_of_k() {
        const NONE: [u32; 0] = [];
        let columns = |entry, [m, n]: [u32; 2], ctas, split_k: SplitK| {
            let cuts = Work { m, n, k: 4096, ctas }.cuts(entry, split_k.into());
            cuts.filter(|cut| cut.cols > 0).map(|cut| cut.cols).collect::<Vec<_>>()
        };
        let of = |op, tile| Variant::default().entry_of(op, tile).unwrap();
        let (small, two) = (of(Op::Gemm, [64, 64]), of(Op::Gemm, [128, 64]));
        for split_k in [SplitK::Auto, SplitK::Never] {
            assert_eq!(columns(small, [16, 6144], 132, split_k), [48, 24]);
            assert_eq!(columns(small, [1, 4608], 132, split_k), [40, 24]);
            assert_eq!(columns(two, [128, 6144], 132, split_k), [48, 24]);
            assert_eq!(columns(small, [200, 4608], 132, split_k), NONE, "more than two waves");
            assert_eq!(columns(small, [65, 4608], 132, split_k), [40], "two rows of tiles, two waves");
            assert_eq!(columns(small, [1, 1], 132, split_k), [8, 8]);
            assert_eq!(columns(small, [0, 0], 132, split_k), NONE, "nothing to cut");
            assert_eq!(columns(small, [u32::MAX, u32::MAX], 132, split_k), NONE);
        }
        assert_eq!(columns(small, [16, 6144], 132, SplitK::Always), NONE);
        assert_eq!(columns(small, [16, 6144], 132, SplitK::Runs), NONE);
        assert_eq!(columns(of(Op::GemmEpilogue, [64, 64]), [16, 6144], 132, SplitK::Auto), NONE);
        assert_eq!(columns(of(Op::Gemm, [64, 96]), [16, 6144], 132, SplitK::Auto), NONE);
    }

    #[test]
    fn a_wish_for_columns_is_met_by_kernels_that_can() {
        let may = MayCut { split_k: SplitK::Auto, cols: Some(24) };
        let work = Work { m: 16, n: 6144, k: 12288, ctas: 132 };
        for tile in [[64, 64], [128, 64]] {
            let entries: Vec<_> = eligible(Op::Gemm, Variant::default(), Some(tile)).collect();
            let choice = choose(&entries, work, may).unwrap();
            assert_eq!((choice.cut, choice.tile_extent()), (Cut::into_columns(24), [tile[0], 24]));
            assert!(!work.may_split(entries[0], may) && work.may_split(entries[0], SplitK::Auto.into()));
        }
        let other: Vec<_> = eligible(Op::Gemm, Variant::default(), Some([64, 128])).collect();
        assert_eq!(choose(&other, work, may), choose(&other, work, SplitK::Auto));
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
        let f32_out = Variant::new(Layout::Nt, Element::Bf16, Element::F32);
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
                for cut in work.cuts(entry, SplitK::Auto.into()) {
                    let given = if cut.abreast > 0 { ctas } else { all_given(cut.tiles, cut.parts) };
                    assert!(given <= Work::room(ctas, entry), "{work:?}: {cut:?}");
                }
            }
        }
    }
}
