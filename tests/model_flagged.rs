//! Model of flagged words over three calls, across the wrap of the epoch: the consumers on every rank, which send, take
//! and leave.
//!
//! Words are relaxed: what a flag says is only that its own word is of this call. A rank that owns no rows waits for
//! nobody's words and may run ahead of its peers: only credits hold it back. One that runs too far takes away what a
//! peer still waits for, and the peer waits for ever.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Open, Problem, check, d_panel};
use std::sync::Arc;
use tilewire_kernels::abi::{Placement, Transport};
use tilewire_kernels::comm::route::chunk_of;
use tilewire_kernels::config::{PANEL_BUFS, Tile};
use tilewire_kernels::kernels::Kernel;
use tilewire_kernels::kernels::low_latency_reduce_scatter::LowLatencyReduceScatter;
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

type Config = Tile<64, 64, 2>;
type LowLatency = LowLatencyReduceScatter<Config, 2, PANEL_BUFS>;

const CALLS: u32 = 3;
const FIRST_EPOCH: u32 = 0xFFFF_FFFE;
const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };

/// Rank `rank`'s calls. `m` is the thread that leaves.
fn calls(m: Agent<Config>, problem: Problem, rank: Rank) {
    let args = problem.args::<Config>(rank);
    let owns_rows = chunk_of(problem.m, problem.world, rank).rows > 0;
    // The accumulator of its n-th tile shows n hundreds.
    let consumer = m.also(Role::Consumer(0));
    for call in 1..=CALLS {
        LowLatency::consumer(&consumer, &args, AT, 0).expect("nothing aborts");
        if owns_rows {
            let sum = m.cta.memory.payload(d_panel(problem.d(rank), 0, 0)).read();
            assert_eq!(sum, problem.world * call * 100, "words of another call");
        }
        LowLatency::leave(&m, &args, AT);
    }
}

fn model(name: &str, preemptions: usize, m: u32, world: u32, words_are_fresh: bool, mutant: Option<Mutant>) {
    let problem = Problem { m, n: 64, k: 0, world, transport: Transport::Push, placement: Placement::Epilogue };
    check(name, preemptions, move || {
        let memory = Arc::new(problem.memory::<Config>(FIRST_EPOCH));
        let agent = |rank: Rank| {
            let mut cta = Cta::<Config>::new(memory.clone(), mutant);
            (cta.d, cta.open, cta.words_are_fresh) = (problem.d(rank), Open::All, words_are_fresh);
            cta.start().agent(Role::Producer)
        };
        let mut agents: Vec<_> = problem.ranks().map(|rank| (agent(rank), rank)).collect();
        let (last, last_rank) = agents.pop().expect("there are ranks");
        let others: Vec<_> =
            agents.into_iter().map(|(m, rank)| thread::spawn(move || calls(m, problem, rank))).collect();
        calls(last, problem, last_rank);
        for other in others {
            other.join().expect("the rank ends");
        }
        for rank in problem.ranks() {
            let own = problem.workspace::<Config>(rank);
            assert_eq!(memory.value(own.epoch()), FIRST_EPOCH.wrapping_add(CALLS));
        }
    });
}

#[test]
fn a_rank_that_only_sends_never_overwrites_words_that_are_awaited() {
    model("flagged words, 2 ranks, 1 owner", 3, 1, 2, false, None);
}

#[test]
fn two_ranks_that_send_to_each_other_never_wait_in_a_circle() {
    model("flagged words, 2 ranks, 2 owners", 3, 64, 2, true, None);
}

#[test]
fn three_ranks_of_which_one_owns_nothing_keep_their_calls_apart() {
    model("flagged words, 3 ranks, 2 owners", 2, 2, 3, true, None);
}

#[test]
fn three_ranks_that_all_own_rows_never_wait_in_a_circle() {
    model("flagged words, 3 ranks, 3 owners", 2, 3, 3, true, None);
}

#[test]
#[should_panic(expected = "deadlock: Consumer(0) waits for Signal")]
fn a_sender_that_needs_no_credit_overwrites_words_that_are_awaited() {
    model("flagged words, mutant", 2, 1, 2, false, Some(Mutant::Ahead("credit", 2)));
}

#[test]
#[should_panic(expected = "words of another call")]
fn words_taken_whatever_their_flags_are_those_of_another_call() {
    model("flagged words, mutant", 2, 64, 2, true, Some(Mutant::AnyFlag));
}
