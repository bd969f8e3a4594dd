//! Random calls on a Hopper GPU, compared with the references, for a fixed time: the cases of `tests/emu_fuzz.rs`, larger.
//!
//! `TILEWIRE_FUZZ_SECONDS=N` sets how long each test runs (from 60 on with a larger `TILEWIRE_TEST_DEADLINE_S`),
//! `TILEWIRE_FUZZ_FIRST=S` with which seed it begins, and `TILEWIRE_FUZZ_SEED=S` replays one case.

mod common;
mod gpu_support;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use common::{Case, TestResult, in_child, text};
use gpu_support::{Gate, virtual_ranks};
use suite::fuzz::{Delays, FuzzCase, FuzzOp, Limits, number_from, run_case, seeds, until};
use tilewire::World;
use tilewire::data::random_at;
use tilewire::driver::Gpu;

const LIMITS: Limits = Limits { ranks: 8, m: 3000, n: 2000, k: 1500, products: 150_000_000 };

/// Streams that wait for a word block those that share their hardware queue: give every stream one of its own.
const QUEUES: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

/// Longest time for which a rank is held back.
const MAX_DELAY_US: u64 = 300;

const VIRTUAL: &str = "random_calls_on_virtual_ranks_give_what_the_references_give";
const LOCAL: &str = "random_calls_on_several_gpus_give_what_the_references_give";

/// Worlds by their number of ranks, made once.
struct Worlds<F> {
    make: F,
    made: RefCell<HashMap<usize, World>>,
}

impl<F: Fn(usize) -> Result<World, String>> Worlds<F> {
    fn of(&self, ranks: usize) -> Result<World, String> {
        if let Some(world) = self.made.borrow().get(&ranks) {
            return Ok(world.clone());
        }
        let world = (self.make)(ranks)?;
        self.made.borrow_mut().insert(ranks, world.clone());
        Ok(world)
    }
}

/// Runs one case; in every other call of several ranks, one of them comes late.
fn run(world: &World, gpus: &[Gpu], fuzz: &FuzzCase) -> TestResult {
    let gates: Vec<Gate> =
        (0..world.size()).map(|rank| Gate::new(world, &gpus[rank % gpus.len()], rank)).collect::<Result<_, _>>()?;
    let turn = Cell::new(0);
    let late = |call: u64| {
        random_at(fuzz.seed, call, 3)
            .is_multiple_of(2)
            .then(|| &gates[(random_at(fuzz.seed, call, 4) % gates.len() as u64) as usize])
    };
    let before = |call: u64| -> TestResult {
        turn.set(turn.get() + 1);
        late(call).map_or(Ok(()), |gate| gate.close(turn.get()))
    };
    let after = |call: u64| {
        if let Some(gate) = late(call) {
            std::thread::sleep(Duration::from_micros(random_at(fuzz.seed, call, 5) % MAX_DELAY_US));
            gate.open(turn.get());
        }
    };
    run_case(world, fuzz, &Delays { before: &before, after: &after })
}

fn fuzz(gpus: &[Gpu], limits: &Limits, first: u64, make: impl Fn(usize) -> Result<World, String>) -> TestResult {
    let worlds = Worlds { make, made: RefCell::default() };
    let limit = Duration::from_secs(number_from("TILEWIRE_FUZZ_SECONDS").unwrap_or(20));
    let first = number_from("TILEWIRE_FUZZ_FIRST").unwrap_or(first);
    let mut cases = 0;
    for seed in seeds(first, until(limit)) {
        let mut fuzz = FuzzCase::of(seed, limits);
        if fuzz.op == FuzzOp::GemmReduceScatter {
            fuzz.ranks = fuzz.ranks.next_multiple_of(gpus.len());
        }
        // A world of several GPUs has at least one rank on each; the plain GEMM uses the first.
        let world = worlds.of(fuzz.ranks.next_multiple_of(gpus.len()))?;
        run(&world, gpus, &fuzz)?;
        cases += 1;
    }
    println!("{cases} cases on {} GPU(s)", gpus.len());
    if cases == 0 { Err("no case ran".to_string()) } else { Ok(()) }
}

fn on_virtual_ranks(gpu: &Gpu) -> TestResult {
    in_child(VIRTUAL, gpu, &[QUEUES], |gpu| fuzz(std::slice::from_ref(gpu), &LIMITS, 1_000_000, virtual_ranks))
}

fn on_several_gpus(gpus: &[Gpu]) -> TestResult {
    let most = Limits { ranks: 8 / gpus.len() * gpus.len(), ..LIMITS };
    fuzz(gpus, &most, 2_000_000, |ranks| {
        let places: Vec<usize> = (0..ranks).map(|rank| rank % gpus.len()).collect();
        World::local(&places).map_err(text)
    })
}

fn main() -> ExitCode {
    common::suite_main(vec![Case::one(VIRTUAL, on_virtual_ranks), Case::several(LOCAL, 2, on_several_gpus)])
}
