//! Thousands of seeded schedules of the real kernels: every one keeps the rules of the machine and gives the same bits.
//!
//! `TILEWIRE_SCHEDULES=N` sets how many run, `TILEWIRE_FIRST_SCHEDULE=F` with which number they begin, and
//! `TILEWIRE_SEED=S` replays schedule S alone. The schedule's number settles everything: the case, the delays, the order of
//! turns and copies.

use rayon::prelude::*;
use suite::epilogue::FORMS;
use suite::fuzz::{FuzzCase, FuzzOp, number_from, run_in_a_row};
use suite::narrow::TILES as NARROW_TILES;
use suite::{Case, WAYS};
use tilewire::emulator::{Copies, Delay, EmulatorOptions, Turns};
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::config::Element::{self, Bf16, E4m3, E5m2, F16, F32};
use tilewire::kernels::shape::Rank;
use tilewire::world::EmulatedOptions;
use tilewire::{Layout, SplitK, World};

/// Schedules of a run that asks for no number.
const SCHEDULES: u64 = 2_500;

/// M, N, K: one tile and several, whole and ragged, of every tile that there is.
const SHAPES: [(usize, usize, usize); 10] = [
    (64, 72, 24),
    (9, 104, 136),
    (130, 72, 64),
    (200, 136, 40),
    (77, 264, 72),
    (33, 128, 200),
    (1, 80, 64),
    (150, 256, 24),
    (196, 88, 100),
    (118, 200, 128),
];

/// Layout, and types of A, B and D.
const VARIANTS: [(Layout, [Element; 3]); 10] = [
    (Layout::Nt, [Bf16, Bf16, Bf16]),
    (Layout::Nt, [F16, F16, F32]),
    (Layout::Nt, [Bf16, Bf16, F16]),
    (Layout::Nn, [Bf16, Bf16, F32]),
    (Layout::Nn, [F16, F16, F16]),
    (Layout::Tn, [Bf16, Bf16, Bf16]),
    (Layout::Tn, [F16, F16, Bf16]),
    (Layout::Nt, [E4m3, E4m3, Bf16]),
    (Layout::Nt, [E4m3, E5m2, F16]),
    (Layout::Nt, [E4m3, E4m3, F32]),
];

/// One way to run one call.
#[derive(Clone, Debug)]
struct Run {
    number: u64,
    case: FuzzCase,
    ctas: u32,
    /// Calls that do not wait for each other: ranks run ahead of one another as far as credits let them.
    calls: usize,
    options: EmulatorOptions,
}

/// A well-mixed number for each draw of a schedule.
fn draw(number: u64, of: u64, below: u64) -> usize {
    (tilewire::data::random_at(number, of, 0) % below) as usize
}

impl Run {
    fn of(number: u64) -> Self {
        let pick = |of, below: usize| draw(number, of, below as u64);
        // Few variants and epilogues a shape, so that results can be compared with few references.
        let shape = pick(0, SHAPES.len());
        let variant = (shape + 2 * pick(9, 5)) % VARIANTS.len();
        let op = if pick(1, 3) == 0 { FuzzOp::Gemm } else { FuzzOp::GemmReduceScatter };
        let ranks = if op == FuzzOp::Gemm { 1 } else { 1 + pick(2, 8) };
        let (transport, placement, margin) = WAYS[pick(3, WAYS.len())];
        let ((m, n, k), (layout, [input, input_b, output])) = (SHAPES[shape], VARIANTS[variant]);
        let first_epoch = [1, 0x7FFF_FFFE, 0xFFFF_FFFE][pick(10, 3)];
        let case = Case { first_epoch, ..Case::new(m, n, k).layout(layout).over(transport, placement, margin) };
        let mut case = FuzzCase {
            seed: 1,
            op,
            ranks,
            case,
            input,
            input_b,
            output,
            scales: None,
            form: None,
            split_k: SplitK::Never,
            tile: None,
            tile_cols: None,
            raster_group: [1, 16][pick(11, 2)],
            head_start: [1, 2, u32::MAX][pick(32, 3)],
            gap: 8,
            integers: None,
            calls: vec![m],
        };
        let mut calls = if pick(8, 8) == 0 { 4 } else { 1 };
        if pick(12, 3) == 0 {
            let form = FORMS
                [(10 * shape + variant + 7 * pick(13, if op == FuzzOp::Gemm { FORMS.len() } else { 2 })) % FORMS.len()];
            case = case.with_form(form);
            calls = if form.in_place { 1 } else { calls };
        }
        case.scales = case.may_have_scales().then_some(0);
        if op == FuzzOp::Gemm {
            case.split_k = [SplitK::Auto, SplitK::Always, SplitK::Runs][pick(14, 3)];
        }
        let tiles = case.tiles();
        case.tile = tiles.get(pick(43, 1 + tiles.len())).copied();
        // Tiles of other columns are never cut, and seldom drawn.
        if pick(40, 8) == 0 && case.tile.is_none_or(|[_, cols]| cols.is_power_of_two()) {
            // With an epilogue there is only one that narrows.
            let tile = if case.form.is_some() { 0 } else { pick(41, NARROW_TILES.len()) };
            case = case.narrowed(tile, [8, 16, 40, 48, 56][pick(42, 5)]);
        }
        let mut options = EmulatorOptions::with_seed(number);
        options.schedule.yield_per_1024 = [64, 256, 1024][pick(4, 3)];
        options.schedule.turns = [Turns::Uniform, Turns::Sticky, Turns::Priority][pick(5, 3)];
        options.schedule.copies =
            [Copies::Last, Copies::Per1024(16), Copies::Per1024(128), Copies::Per1024(700)][pick(6, 4)];
        let delay = [None, None, Some(Delay::Seldom(16)), Some(Delay::Seldom(200)), Some(Delay::UntilOthersBlock)];
        for rank in 0..ranks {
            let drawn = delay[pick(16 + rank as u64, delay.len())];
            options.delays.extend(drawn.map(|d| (Rank(rank as u32), d)));
        }
        let ctas = 3 - u32::from(margin == 0) * pick(7, 2) as u32;
        Self { number, case, ctas, calls, options }
    }

    /// D of every rank, as bytes.
    fn results(&self) -> Result<Vec<Vec<u8>>, String> {
        results(&self.case, self.ctas, self.options.clone(), self.calls, false)
    }

    /// What decides the result's bits, in the plainest way: which way tiles take does not. The number of CTAs and the raster
    /// group do where tiles are cut: they say which.
    fn problem(&self) -> Problem {
        let Case { m, n, k, layout, .. } = self.case.case;
        let cuts = self.case.op == FuzzOp::Gemm;
        let raster_group = if cuts { self.case.raster_group } else { 8 };
        let mut case =
            FuzzCase { case: Case::new(m, n, k).layout(layout), raster_group, head_start: 1, ..self.case.clone() };
        // A tile of fewer columns has the bits of the whole one.
        case.tile_cols = case.tile_cols.and(case.tile).map(|[_, cols]| cols);
        let ctas = if cuts { self.ctas - self.case.case.sm_margin } else { 3 };
        Problem { name: format!("{case:?} on {ctas} CTAs"), case, ctas }
    }
}

fn results(
    case: &FuzzCase,
    ctas_per_rank: u32,
    emulator: EmulatorOptions,
    calls: usize,
    is_compared: bool,
) -> Result<Vec<Vec<u8>>, String> {
    let options = EmulatedOptions { ctas_per_rank, emulator, ..EmulatedOptions::default() };
    let world = World::emulated_with(case.ranks, options).map_err(|e| e.to_string())?;
    run_in_a_row(&world, case, calls, is_compared)
}

#[derive(Clone, Debug)]
struct Problem {
    name: String,
    case: FuzzCase,
    ctas: u32,
}

impl Problem {
    /// The bits, once they are known to be near the truth.
    fn reference(&self) -> Vec<Vec<u8>> {
        results(&self.case, self.ctas, EmulatorOptions::with_seed(0), 1, true)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }
}

#[test]
fn thousands_of_schedules_keep_the_rules_and_give_the_same_bits() {
    let first = number_from("TILEWIRE_FIRST_SCHEDULE").unwrap_or(0);
    let numbers = match number_from("TILEWIRE_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number_from("TILEWIRE_SCHEDULES").unwrap_or(SCHEDULES),
    };
    let start = std::time::Instant::now();
    let mut problems: Vec<Problem> = numbers.clone().into_par_iter().map(|n| Run::of(n).problem()).collect();
    problems.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    problems.dedup_by(|a, b| a.name == b.name);
    let references: std::collections::HashMap<_, _> =
        problems.par_iter().map(|p| (p.name.clone(), p.reference())).collect();
    println!("{} problems have their references after {:.1} s", problems.len(), start.elapsed().as_secs_f64());
    let wrong: Vec<String> = numbers
        .clone()
        .into_par_iter()
        .filter_map(|number| {
            let run = Run::of(number);
            match run.results() {
                Ok(bits) if bits == references[&run.problem().name] => None,
                Ok(_) => Some(format!("TILEWIRE_SEED={number} replays: other bits in {run:?}")),
                Err(e) => Some(format!("TILEWIRE_SEED={number} replays: {e}\n  in {run:?}")),
            }
        })
        .collect();
    println!("schedules {numbers:?} of {} problems in {:.1} s", problems.len(), start.elapsed().as_secs_f64());
    let shown: Vec<_> = wrong.iter().take(5).cloned().collect();
    assert!(wrong.is_empty(), "{} of {numbers:?} are wrong; the first:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn schedules_cover_every_way_kernel_and_world_size() {
    let runs: Vec<Run> = (0..SCHEDULES).map(Run::of).collect();
    let at_least = |least: usize, what: &str, is: &dyn Fn(&FuzzCase) -> bool| {
        let count = runs.iter().filter(|run| is(&run.case)).count();
        assert!(count >= least, "{what}: {count} of {SCHEDULES}");
    };
    let some = |what: &str, is: &dyn Fn(&FuzzCase) -> bool| at_least(4, what, is);
    let is_fused = |c: &FuzzCase| c.op == FuzzOp::GemmReduceScatter;
    for ranks in 1..=8 {
        for way in WAYS {
            let here = (ranks, way);
            some(&format!("{here:?}"), &|c| {
                let case = &c.case;
                is_fused(c) && (c.ranks, (case.transport, case.placement, case.sm_margin)) == here
            });
        }
    }
    for (layout, types) in VARIANTS {
        let is_it = |c: &FuzzCase| c.case.layout == layout && [c.input, c.input_b, c.output] == types;
        some(&format!("plain {layout} {types:?}"), &|c| !is_fused(c) && is_it(c));
        some(&format!("fused {layout} {types:?}"), &|c| is_fused(c) && is_it(c));
    }
    for form in FORMS {
        some(&format!("plain {form:?}"), &|c| !is_fused(c) && c.form == Some(form));
        some(&format!("fused {form:?}"), &|c| is_fused(c) && c.form == Some(form));
    }
    for tile in [[128, 256], [64, 128], [128, 128]] {
        for split_k in [SplitK::Auto, SplitK::Always, SplitK::Runs] {
            some(&format!("{tile:?} {split_k:?}"), &|c| (c.tile, c.split_k) == (Some(tile), split_k));
        }
    }
    for tile in [[128, 192], [128, 176], [128, 160], [128, 144], [128, 96], [64, 192], [64, 96]] {
        // Each is one of thirteen of some plain products.
        at_least(2, &format!("plain {tile:?}"), &|c| !is_fused(c) && c.tile == Some(tile));
    }
    for tile in NARROW_TILES {
        some(&format!("{tile:?} of fewer columns"), &|c| {
            c.tile_cols.is_some() && (c.tile, c.form) == (Some(tile), None)
        });
    }
    some("consumers in turns over ranks", &|c| is_fused(c) && c.ranks > 1 && c.tile == Some([128, 192]));
    let few_rows =
        |c: &FuzzCase| is_fused(c) && (c.form, c.tile) == (None, None) && c.case.m <= 128 && c.input.bytes() == 2;
    let by_registers = |c: &FuzzCase| {
        few_rows(c) && c.case.m <= 64 && (c.case.transport, c.case.placement) == (Transport::Push, Placement::Epilogue)
    };
    some("tiles of few rows, by slots", &|c| {
        few_rows(c) && !by_registers(c) && c.case.layout == Layout::Nt && c.case.transport != Transport::Staged
    });
    some("tiles of few rows, by registers", &|c| by_registers(c) && c.case.layout == Layout::Nt);
    some("the small tile, staged", &|c| few_rows(c) && c.case.transport == Transport::Staged);
    some("epochs that wrap", &|c| is_fused(c) && c.case.first_epoch > 1 && c.case.placement == Placement::Partition);
    assert!(runs.iter().enumerate().all(|(n, r)| r.number == n as u64));
}
