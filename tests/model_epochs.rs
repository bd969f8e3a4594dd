//! Model of slots and credits over three calls, across the wrap of the epoch: the kernel's roles on every rank.
//!
//! One thread is one rank; it runs the roles that reach other ranks one after the other, with the CTA's own barriers
//! open (the models of the rings and the hand-over have those). A rank that owns no rows waits for nobody's partials
//! and may run ahead of its peers: only credits hold it back.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Open, Problem, check, d_panel};
use std::sync::Arc;
use tilewire_kernels::abi::GemmReduceScatterArgs;
use tilewire_kernels::abi::{Placement, Transport};
use tilewire_kernels::comm::route::chunk_of;
use tilewire_kernels::config::{Bf16, FEW_PANEL_BUFS, Nt, PANEL_BUFS, PANEL_BYTES, Tile, TileConfig};
use tilewire_kernels::kernels::few_rows_reduce_scatter::FewRowsReduceScatter;
use tilewire_kernels::kernels::{Kernel, gemm_reduce_scatter::GemmReduceScatter};
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

type Config = Tile<64, 64, 2>;
type OwnTiles = GemmReduceScatter<Config, 2, PANEL_BUFS>;
type SharedTile = FewRowsReduceScatter<Tile<64, 64, 2, Nt, Bf16, Bf16, FEW_PANEL_BUFS>, 2, FEW_PANEL_BUFS>;

const CALLS: u32 = 3;
const FIRST_EPOCH: u32 = 0xFFFF_FFFE;
const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };

/// What rank `rank` computes in call `call`.
fn partial(rank: Rank, call: u32) -> u32 {
    (rank.0 + 1) * 100 + call
}

/// Rank `rank`'s calls. `m` is the thread that leaves.
fn calls<K>(m: Agent<K::Config>, problem: Problem, rank: Rank)
where
    K: Kernel<Args = GemmReduceScatterArgs>,
{
    let (args, plan) = (problem.args::<K::Config>(rank), K::Config::SMEM);
    let owns_rows = chunk_of(problem.m, problem.world, rank).rows > 0;
    for call in 0..CALLS {
        let buffers = m.cta.panels(plan.panel(0, 0), plan.panel_bufs() * PANEL_BYTES);
        buffers.iter().for_each(|buffer| buffer.write(partial(rank, call)));
        let storer = m.also(Role::Storer);
        K::mover(&storer, &args, AT, Role::Storer).expect("nothing aborts");
        storer.finish();
        let peers = problem.ranks().filter(|peer| *peer != rank);
        match problem.placement {
            Placement::Partition => {
                let consumer = m.also(Role::Consumer(0));
                K::consumer(&consumer, &args, AT, 0).expect("nothing aborts");
                if owns_rows {
                    let sum = m.cta.memory.payload(d_panel(problem.d(rank), 0, 0)).read();
                    assert_eq!(sum, problem.ranks().map(|peer| partial(peer, call)).sum(), "partials of another call");
                }
            }
            Placement::Epilogue => {
                let loader = m.also(Role::Loader);
                K::mover(&loader, &args, AT, Role::Loader).expect("nothing aborts");
                loader.finish();
                for (buffer, peer) in buffers.iter().zip(peers).filter(|_| owns_rows) {
                    assert_eq!(buffer.read(), partial(peer, call), "a partial of another call");
                }
            }
        }
        K::leave(&m, &args, AT);
    }
}

fn model(name: &str, preemptions: usize, problem: Problem, words_are_fresh: bool, mutant: Option<Mutant>) {
    model_of::<OwnTiles>(name, preemptions, problem, words_are_fresh, mutant);
}

fn model_of<K>(name: &str, preemptions: usize, problem: Problem, words_are_fresh: bool, mutant: Option<Mutant>)
where
    K: Kernel<Args = GemmReduceScatterArgs>,
{
    check(name, preemptions, move || {
        let memory = Arc::new(problem.memory::<K::Config>(FIRST_EPOCH));
        let agent = |rank: Rank| {
            let mut cta = Cta::<K::Config>::new(memory.clone(), mutant);
            (cta.d, cta.open, cta.words_are_fresh) = (problem.d(rank), Open::All, words_are_fresh);
            cta.start().agent(Role::Producer)
        };
        let mut agents: Vec<_> = problem.ranks().map(|rank| (agent(rank), rank)).collect();
        let (last, last_rank) = agents.pop().expect("there are ranks");
        let others: Vec<_> =
            agents.into_iter().map(|(m, rank)| thread::spawn(move || calls::<K>(m, problem, rank))).collect();
        calls::<K>(last, problem, last_rank);
        for other in others {
            other.join().expect("the rank ends");
        }
        for rank in problem.ranks() {
            let own = problem.workspace::<K::Config>(rank);
            assert_eq!(memory.value(own.epoch()), FIRST_EPOCH.wrapping_add(CALLS));
            for owner in problem.ranks().filter(|owner| *owner != rank) {
                assert_eq!(memory.value(own.credit(owner)), FIRST_EPOCH.wrapping_add(CALLS - 1));
            }
        }
    });
}

const fn push(m: u32, world: u32, placement: Placement) -> Problem {
    Problem { m, n: 64, k: 0, world, transport: Transport::Push, placement }
}

/// Rank 1 owns nothing: it only sends to rank 0.
const ONE_OWNER: Problem = push(1, 2, Placement::Partition);

fn mutant(mutant: Mutant) {
    model("epochs, mutant", 2, ONE_OWNER, false, Some(mutant));
}

#[test]
fn a_rank_that_only_sends_never_overwrites_a_slot_in_use() {
    model("epochs, 2 ranks, 1 owner, partition", 3, ONE_OWNER, false, None);
}

#[test]
fn a_rank_that_only_sends_never_overwrites_a_slot_that_a_loader_reads() {
    model("epochs, 2 ranks, 1 owner, epilogue", 3, push(1, 2, Placement::Epilogue), false, None);
}

#[test]
fn two_ranks_that_send_to_each_other_never_wait_in_a_circle() {
    model("epochs, 2 ranks, 2 owners, partition", 3, push(128, 2, Placement::Partition), true, None);
}

#[test]
fn three_ranks_of_which_one_owns_nothing_keep_their_calls_apart() {
    model("epochs, 3 ranks, 2 owners, partition", 2, push(2, 3, Placement::Partition), true, None);
}

#[test]
fn three_ranks_that_all_own_rows_never_wait_in_a_circle() {
    model("epochs, 3 ranks, 3 owners, partition", 2, push(192, 3, Placement::Partition), true, None);
}

#[test]
fn a_shared_tile_is_never_sent_over_a_slot_in_use() {
    model_of::<SharedTile>("epochs, shared tile, 2 ranks, 1 owner", 3, ONE_OWNER, false, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_shared_tile_that_needs_no_credit_is_sent_over_a_slot_in_use() {
    model_of::<SharedTile>("epochs, mutant", 2, ONE_OWNER, false, Some(Mutant::Ahead("credit", 2)));
}

#[test]
#[should_panic(expected = "a bulk store follows a credit without a proxy fence")]
fn a_shared_tiles_storer_without_its_proxy_fence_is_noticed() {
    model_of::<SharedTile>("epochs, mutant", 2, ONE_OWNER, false, Some(Mutant::NoProxyFence(Role::Storer)));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_sender_that_needs_no_credit_overwrites_a_slot_in_use() {
    mutant(Mutant::Ahead("credit", 2));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_credit_that_is_off_by_one_call_overwrites_a_slot_in_use() {
    mutant(Mutant::Ahead("credit", 1));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_credit_returned_without_a_release_races() {
    mutant(Mutant::RelaxedStore("credit"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_credit_seen_without_an_acquire_races() {
    mutant(Mutant::RelaxedLoad("credit"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_signal_that_is_off_by_one_call_reads_a_slot_too_early() {
    mutant(Mutant::Ahead("signal", 1));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_partial_sent_without_a_release_races() {
    mutant(Mutant::RelaxedStore("signal"));
}

#[test]
#[should_panic(expected = "a bulk store follows a credit without a proxy fence")]
fn a_storer_without_its_proxy_fence_is_noticed() {
    mutant(Mutant::NoProxyFence(Role::Storer));
}

#[test]
#[should_panic(expected = "a bulk load follows an acquire without a proxy fence")]
fn a_loader_without_its_proxy_fence_is_noticed() {
    let epilogue = push(1, 2, Placement::Epilogue);
    model("epochs, mutant", 2, epilogue, false, Some(Mutant::NoProxyFence(Role::Loader)));
}
