//! Model of the staged transport: the storer stores tiles to staging, the producer picks them up through the operand ring
//! and the storer carries them to their owner. All roles of one CTA, and the owner.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Problem, check};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tilewire_kernels::abi::{Placement, Transport, WaitKind};
use tilewire_kernels::comm::signal::wait_signal;
use tilewire_kernels::config::{PANEL_BUFS, Tile};
use tilewire_kernels::kernels::{Kernel, gemm_reduce_scatter::GemmReduceScatter};
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

type Config = Tile<64, 64, 2>;
type GemmRs = GemmReduceScatter<Config, 2, PANEL_BUFS>;

const EPOCH: u32 = 6;
const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };
const SENDER: Rank = Rank(0);
const OWNER: Rank = Rank(1);

fn problem(tiles: u32) -> Problem {
    let (transport, placement) = (Transport::Staged, Placement::Partition);
    Problem { m: 128, n: 64 * tiles, k: 0, world: 2, transport, placement }
}

fn run(m: Agent<Config>, tiles: u32) {
    let args = problem(tiles).args::<Config>(SENDER);
    match m.role {
        Role::Consumer(consumer) => GemmRs::consumer(&m, &args, AT, consumer),
        role => GemmRs::mover(&m, &args, AT, role),
    }
    .expect("nothing aborts");
    m.finish();
}

/// The owner reads every tile that the sender computed for it; the sender counts its tiles from 1.
fn receive(m: Agent<Config>, tiles: u32) {
    let own = problem(tiles).workspace::<Config>(OWNER);
    for tile in 0..tiles {
        wait_signal(&m, m.role, WaitKind::Signal, tile, own.signal(SENDER, tile), EPOCH).expect("nothing aborts");
        let landed = m.cta.memory.payload(own.slot(EPOCH, SENDER, tile)).read();
        assert_eq!(landed, (tile + 1) * 100, "another tile landed in the slot");
    }
}

fn model(name: &str, preemptions: usize, tiles: u32, mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let memory = problem(tiles).memory::<Config>(EPOCH);
        for tile in 0..tiles {
            let sent = problem(tiles).workspace::<Config>(SENDER).signal(OWNER, tile);
            memory.word(sent).store(EPOCH, Ordering::Release, false);
        }
        let memory = Arc::new(memory);
        let mut cta = Cta::<Config>::new(memory.clone(), mutant);
        cta.d = problem(tiles).d(SENDER);
        let cta = cta.start();
        let owner = Cta::<Config>::new(memory, mutant).start().agent(Role::Loader);
        let roles = [Role::Producer, Role::Storer, Role::Consumer(0)];
        let roles = roles.map(|role| cta.agent(role)).map(|m| thread::spawn(move || run(m, tiles)));
        receive(owner, tiles);
        for role in roles {
            role.join().expect("the role ends");
        }
    });
}

fn mutant(mutant: Mutant) {
    model("staged, mutant", 2, 2, Some(mutant));
}

#[test]
fn staged_tiles_reach_their_owner() {
    model("staged, 1 tile", 3, 1, None);
}

#[test]
fn two_staged_tiles_are_in_flight_before_the_first_is_signalled() {
    model("staged, 2 tiles", 1, 2, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_staged_tile_announced_without_a_release_races() {
    mutant(Mutant::RelaxedStore("staged"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_staged_tile_picked_up_without_an_acquire_races() {
    mutant(Mutant::RelaxedLoad("staged"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_carried_tile_signalled_before_it_is_written_races() {
    mutant(Mutant::NoGroupComplete);
}

#[test]
#[should_panic(expected = "a bulk load follows an acquire without a proxy fence")]
fn a_staged_tile_picked_up_without_the_proxy_fence_is_noticed() {
    mutant(Mutant::NoProxyFence(Role::Producer));
}

#[test]
#[should_panic(expected = "a signal is released after bulk stores without a proxy fence")]
fn a_tile_announced_without_the_proxy_fence_is_noticed() {
    mutant(Mutant::NoProxyFence(Role::Storer));
}

#[test]
#[should_panic(expected = "deadlock: Producer waits for StageEmpty 0")]
fn a_stage_that_is_not_freed_after_carrying_stops_the_producer() {
    model("staged, mutant", 1, 3, Some(Mutant::NoArrive("empty")));
}
