//! Random calls on the emulator under random schedules, compared with the references.
//!
//! `TILEWIRE_FUZZ_CASES=N` sets how many run, `TILEWIRE_FUZZ_FIRST=S` with which seed they begin, and
//! `TILEWIRE_FUZZ_SEED=S` replays one.

mod suite;

use half::bf16;
use rayon::prelude::*;
use suite::fuzz::{FuzzCase, FuzzOp, Limits, PROMPT, compare, number_from, run_case, seeds};
use tilewire::World;
use tilewire::data::random_at;
use tilewire::emulator::{Delay, EmulatorOptions, Fault, Plant};
use tilewire::kernels::config::Element;
use tilewire::kernels::shape::Rank;
use tilewire::reference::fused;
use tilewire::world::EmulatedOptions;

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
    let cases: Vec<FuzzCase> = (0..CASES).map(|seed| FuzzCase::of(seed, &LIMITS)).collect();
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
    for layout in tilewire::Layout::ALL {
        some(&format!("{layout}"), &|c| c.case.layout == layout);
    }
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
    let work = |c: &FuzzCase| c.ranks == 3 && c.case.m * c.case.n * c.case.k > 0 && c.input == Element::Bf16;
    (seed..).map(|seed| FuzzCase::of(seed, &LIMITS)).find(|c| work(c) && c.output == Element::Bf16).unwrap()
}

#[test]
fn one_bit_that_is_wrong_is_found() {
    let fuzz = FuzzCase { integers: Some(3), ..with_work(0) };
    let operands = fuzz.operands::<bf16>(fuzz.case.m);
    let mut d = fused::protocol::<bf16, bf16, bf16>(fuzz.case.layout, &operands.views()).unwrap();
    compare::<bf16, bf16>(&fuzz, &fuzz.case, &operands, &d).unwrap();
    let x = d[0].data_mut().last_mut().unwrap();
    *x = bf16::from_bits(x.to_bits() ^ 1);
    compare::<bf16, bf16>(&fuzz, &fuzz.case, &operands, &d).unwrap_err();
}

#[test]
fn a_case_that_goes_wrong_says_how_to_replay_it() {
    let fuzz = with_work(100);
    let options = EmulatedOptions { plant: Some(Plant::new(Fault::DroppedCopy)), ..EmulatedOptions::default() };
    let error = run_case(&World::emulated_with(3, options).unwrap(), &fuzz, &PROMPT).unwrap_err();
    assert!(error.contains(&format!("TILEWIRE_FUZZ_SEED={} replays: call 0", fuzz.seed)), "{error}");
}
