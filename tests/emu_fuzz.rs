//! Random calls on the emulator under random schedules, compared with the references.
//!
//! `TILEWIRE_FUZZ_CASES=N` sets how many run, `TILEWIRE_FUZZ_FIRST=S` with which seed they begin, and
//! `TILEWIRE_FUZZ_SEED=S` replays one.

use half::bf16;
use rayon::prelude::*;
use suite::epilogue::FORMS;
use suite::fuzz::{
    FuzzCase, FuzzOp, Given, INPUTS, Limits, OUTPUTS, PROMPT, SCALES, compare, number_from, run_case, run_in_a_row,
    seeds,
};
use tilewire::data::random_at;
use tilewire::emulator::{Delay, EmulatorOptions, Fault, Plant};
use tilewire::kernels::comm::route::Chunk;
use tilewire::kernels::config::Element;
use tilewire::kernels::shape::Rank;
use tilewire::matrix::Matrix;
use tilewire::reference::{chunks_of, fused};
use tilewire::scalar::{F8E4M3, F8E5M2, Scalar};
use tilewire::world::EmulatedOptions;
use tilewire::{Layout, SplitK, World};

/// Cases of a run that asks for no number.
const CASES: u64 = 400;

const LIMITS: Limits = Limits { ranks: 8, m: 400, n: 400, k: 300, products: 4_000_000 };

/// The world of a case: schedule, delays and CTAs come from its seed too.
fn world(fuzz: &FuzzCase) -> Result<World, String> {
    let draw = |of: u64, below: u64| random_at(fuzz.seed, of, 2) % below;
    let mut emulator = EmulatorOptions::with_seed(fuzz.seed);
    emulator.schedule.yield_per_1024 = [64, 256, 1024][draw(0, 3) as usize];
    for rank in 0..fuzz.ranks {
        let delay = match draw(10 + rank as u64, 6) {
            0 => Delay::Seldom(16),
            1 => Delay::Seldom(200),
            2 => Delay::UntilOthersBlock,
            _ => continue,
        };
        emulator.delays.push((Rank(rank as u32), delay));
    }
    let ctas_per_rank = fuzz.case.sm_margin + 1 + draw(1, 3) as u32;
    World::emulated_with(fuzz.ranks, EmulatedOptions { ctas_per_rank, emulator, plant: None })
        .map_err(|e| e.to_string())
}

#[test]
fn random_calls_give_what_the_references_give() {
    let start = std::time::Instant::now();
    let cases = number_from("TILEWIRE_FUZZ_CASES").unwrap_or(CASES);
    let first = number_from("TILEWIRE_FUZZ_FIRST").unwrap_or(0);
    let seeds: Vec<u64> = seeds(first, |number| number >= cases).collect();
    let wrong: Vec<String> = seeds
        .par_iter()
        .filter_map(|seed| {
            let fuzz = FuzzCase::of(*seed, &LIMITS);
            world(&fuzz).and_then(|world| run_case(&world, &fuzz, &PROMPT)).err()
        })
        .collect();
    println!("{} cases in {:.1} s", seeds.len(), start.elapsed().as_secs_f64());
    let shown: Vec<_> = wrong.iter().take(5).cloned().collect();
    assert!(wrong.is_empty(), "{} of {} cases are wrong; the first:\n{}", wrong.len(), seeds.len(), shown.join("\n"));
}

/// What is drawn covers what can be chosen, and a seed always means the same case.
#[test]
fn cases_cover_every_choice() {
    let cases: Vec<FuzzCase> = (0..4 * CASES).map(|seed| FuzzCase::of(seed, &LIMITS)).collect();
    let some = |what: &str, is: &dyn Fn(&FuzzCase) -> bool| {
        assert!(cases.iter().filter(|c| is(c)).count() >= 8, "{what}");
    };
    for ranks in 1..=8 {
        some(&format!("{ranks} ranks"), &|c| c.ranks == ranks && c.op == FuzzOp::GemmReduceScatter);
    }
    for (transport, placement, _) in suite::WAYS {
        let way = (transport, placement);
        some(&format!("{way:?}"), &|c| (c.case.transport, c.case.placement) == way);
    }
    for op in [FuzzOp::Gemm, FuzzOp::GemmReduceScatter] {
        for [input, input_b] in INPUTS {
            for output in OUTPUTS {
                let types = (input, input_b, output);
                some(&format!("{op:?} of {types:?}"), &|c| c.op == op && (c.input, c.input_b, c.output) == types);
            }
        }
        for layout in Layout::ALL {
            some(&format!("{op:?} of {layout}"), &|c| c.op == op && c.case.layout == layout);
        }
        some(&format!("{op:?} with scales"), &|c| {
            c.op == op && c.scales.is_some_and(|first| SCALES[first] != [None; 2])
        });
        some(&format!("{op:?} with an epilogue"), &|c| c.op == op && c.form.is_some());
    }
    for form in FORMS {
        some(&format!("{form:?}"), &|c| c.form == Some(form));
    }
    for split_k in [SplitK::Auto, SplitK::Never, SplitK::Always, SplitK::Runs] {
        some(&format!("{split_k:?}"), &|c| c.op == FuzzOp::Gemm && c.split_k == split_k);
    }
    for tile in [[128, 256], [64, 128], [128, 128]] {
        some(&format!("tile {tile:?}"), &|c| c.tile == Some(tile));
    }
    for tile in [None, Some([64, 64]), Some([128, 64])] {
        some(&format!("fewer columns, tile {tile:?}"), &|c| {
            c.tile_cols.is_some() && c.tile == tile && c.form.is_none()
        });
    }
    some("few rows", &|c| c.op == FuzzOp::GemmReduceScatter && (1..=128).contains(&c.case.m));
    some("M = 0", &|c| c.case.m == 0);
    some("N = 0", &|c| c.case.n == 0);
    some("K = 0", &|c| c.case.k == 0);
    some("rows that end between steps", &|c| c.case.n % 8 != 0 && c.op == FuzzOp::Gemm);
    some("several calls", &|c| c.calls.len() > 2);
    some("integers", &|c| c.integers.is_some() && c.case.m * c.case.n * c.case.k > 0);
    let again = FuzzCase::of(7, &LIMITS);
    assert_eq!(format!("{again:?}"), format!("{:?}", cases[7]));
}

fn with_work(seed: u64) -> FuzzCase {
    let work = |c: &FuzzCase| {
        let types = [c.input, c.output] == [Element::Bf16; 2] && c.form.is_none();
        c.ranks == 3 && c.case.m * c.case.n * c.case.k > 0 && types
    };
    (seed..).map(|seed| FuzzCase::of(seed, &LIMITS)).find(work).unwrap()
}

#[test]
fn one_bit_that_is_wrong_is_found() {
    let fuzz = FuzzCase { integers: Some(3), ..with_work(0) };
    let given = Given::new(&fuzz, fuzz.case.m).unwrap();
    let views: Vec<_> = given.a.iter().zip(&given.b).map(|(a, b)| (a.view(), b.view())).collect();
    let mut d = fused::protocol::<bf16, bf16, bf16>(fuzz.case.layout, &views).unwrap();
    compare(&fuzz, &given, &d).unwrap();
    let x = d[0].data_mut().last_mut().unwrap();
    *x = bf16::from_bits(x.to_bits() ^ 1);
    compare(&fuzz, &given, &d).unwrap_err();
}

/// The comparison knows scales and epilogues: a result without them is wrong, bit by bit and within the tolerance.
#[test]
fn a_scale_or_an_addend_that_is_left_out_is_found() {
    for integers in [None, Some(3)] {
        let is_plain = |c: &FuzzCase| c.case.m * c.case.n * c.case.k > 40_000 && c.form.is_none();
        let cases = (0..).map(|seed| FuzzCase { integers, ..FuzzCase::of(seed, &LIMITS) });
        let fp8 = [Element::E4m3, Element::E5m2, Element::F32];
        let scaled = |c: &FuzzCase| is_plain(c) && [c.input, c.input_b, c.output] == fp8;
        let scaled = FuzzCase { scales: Some(0), ..cases.clone().find(scaled).unwrap() };
        left_out::<F8E4M3, F8E5M2>(&scaled, &FuzzCase { scales: None, ..scaled.clone() });
        let plain = |c: &FuzzCase| is_plain(c) && [c.input, c.output] == [Element::Bf16, Element::F32];
        let plain = cases.clone().find(plain).unwrap();
        for form in FORMS.iter().skip(1) {
            let finished = plain.clone().with_form(*form);
            assert!(finished.form.is_some());
            left_out::<bf16, bf16>(&finished, &plain);
        }
    }
}

/// Results of `less` pass for themselves, and not for those of `whole`.
fn left_out<A: Scalar, B: Scalar>(whole: &FuzzCase, less: &FuzzCase) {
    let m = whole.case.m;
    let world = world(less).unwrap();
    let d = run_in_a_row(&world, less, 1, true).unwrap();
    let rows = chunks_of(m, less.ranks).unwrap();
    let matrix = |(bytes, rows): (&Vec<u8>, &Chunk)| {
        let values = bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect();
        Matrix::from_vec(rows.rows as usize, less.case.n, values).unwrap()
    };
    let d: Vec<_> = d.iter().zip(&rows).map(matrix).collect();
    compare(less, &Given::<A, B, f32>::new(less, m).unwrap(), &d).unwrap();
    compare(whole, &Given::<A, B, f32>::new(whole, m).unwrap(), &d).expect_err(&format!("{whole:?}"));
}

#[test]
fn a_case_that_goes_wrong_says_how_to_replay_it() {
    let fuzz = with_work(100);
    let options = EmulatedOptions { plant: Some(Plant::new(Fault::DroppedCopy)), ..EmulatedOptions::default() };
    let error = run_case(&World::emulated_with(3, options).unwrap(), &fuzz, &PROMPT).unwrap_err();
    assert!(error.contains(&format!("TILEWIRE_FUZZ_SEED={} replays: call 0", fuzz.seed)), "{error}");
}
