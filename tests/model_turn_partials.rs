//! Model of own tiles of consumers that take turns: panels of other owners' tiles to the storer, the hand-over of each
//! consumer's buffers, and peers' partials through them. Storer, loader and both consumers of one CTA.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Problem, Timing, check, d_panel};
use std::sync::Arc;
use tilewire_kernels::abi::{Placement, Transport};
use tilewire_kernels::collective::ping_pong::HALVES;
use tilewire_kernels::config::{PANEL_BYTES, PANEL_ROWS, Tile, TileConfig};
use tilewire_kernels::kernels::{Kernel, gemm_reduce_scatter_ping_pong::GemmReduceScatterPingPong};
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

const EPOCH: u32 = 5;
const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };
/// The rank whose CTA runs; the peers' partials are there already.
const RANK: Rank = Rank(0);

/// One panel a half.
type C = Tile<128, 64, 2>;
type K = GemmReduceScatterPingPong<C, 2>;

/// What `peer`'s slot holds of panel `panel` of tile `tile`, counted through both halves.
fn peers_panel(peer: Rank, tile: u32, panel: u32) -> u32 {
    peer.0 * 10_000 + tile * 1000 + panel
}

/// `tiles` tiles for each owner.
fn model(name: &str, preemptions: usize, world: u32, tiles: u32, timing: Timing, mutant: Option<Mutant>) {
    let (transport, placement) = (Transport::Push, Placement::Epilogue);
    let problem = Problem { m: C::TILE_M * world, n: tiles * C::TILE_N, k: 0, world, transport, placement };
    check(name, preemptions, move || {
        let memory = problem.memory::<C>(EPOCH);
        let own = problem.workspace::<C>(RANK);
        let peers = || problem.ranks().filter(|peer| *peer != RANK);
        for (peer, tile) in peers().flat_map(|peer| (0..tiles).map(move |tile| (peer, tile))) {
            for panel in 0..HALVES * C::PANELS {
                let slot = own.slot(EPOCH, peer, tile).plus((panel * PANEL_BYTES) as u64);
                memory.payload(slot).write(peers_panel(peer, tile, panel));
            }
            memory.word(own.signal(peer, tile)).store(EPOCH, std::sync::atomic::Ordering::Release, false);
        }
        let memory = Arc::new(memory);
        let mut cta = Cta::<C>::new(memory.clone(), mutant);
        (cta.d, cta.timing) = (problem.d(RANK), timing);
        let cta = cta.start_by(K::setup);
        let args = problem.args::<C>(RANK);
        let move_as = move |m: Agent<C>| {
            K::mover(&m, &args, AT, m.role).expect("nothing aborts");
            m.finish();
        };
        let storer = cta.agent(Role::Storer);
        let mut others = vec![thread::spawn(move || move_as(storer))];
        others.extend([0, 1].map(|consumer| {
            let m = cta.agent(Role::Consumer(consumer));
            thread::spawn(move || K::consumer(&m, &args, AT, consumer).expect("nothing aborts"))
        }));
        // First, so that what it does too early shows early.
        move_as(cta.agent(Role::Loader));
        for other in others {
            other.join().expect("the role ends");
        }
        for (tile, half) in (0..tiles).flat_map(|tile| (0..HALVES).map(move |half| (tile, half))) {
            // Each consumer counts its accumulators from 1, two a turn; own tiles are the CTA's last turns.
            let turn = (world - 1) * tiles + tile;
            let mine = (turn / 2 * 2 + half + 1) * 100;
            let sum: u32 = mine + peers().map(|peer| peers_panel(peer, tile, half)).sum::<u32>();
            let at = d_panel(problem.d(RANK), half * PANEL_ROWS, tile * C::TILE_N);
            assert_eq!(memory.payload(at).read(), sum, "another sum arrived in D: tile {tile}, half {half}");
        }
    });
}

fn mutant(mutant: Mutant) {
    model("own tiles in turns, mutant", 1, 2, 3, Timing::Early, Some(mutant));
}

#[test]
fn each_consumers_buffers_pass_to_the_loader_after_its_last_tile_for_others() {
    model("own tiles in turns, 2 ranks, 2 tiles", 1, 2, 2, Timing::Early, None);
}

#[test]
fn a_consumer_may_have_more_turns_than_the_other() {
    model("own tiles in turns, 2 ranks, 1 tile", 2, 2, 1, Timing::Early, None);
}

#[test]
fn peers_panels_that_land_late_are_waited_for() {
    model("own tiles in turns, 2 ranks, 2 tiles, loads late", 1, 2, 2, Timing::Late, None);
}

#[test]
fn panels_of_two_peers_are_added_in_rank_order() {
    model("own tiles in turns, 3 ranks, 1 tile", 1, 3, 1, Timing::Early, None);
}

#[test]
fn without_peers_results_go_through_empty_buffers() {
    model("own tiles in turns, 1 rank, 3 tiles", 1, 1, 3, Timing::Early, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_hand_over_without_the_storers_last_reads_races() {
    mutant(Mutant::NoWait(Role::Loader, "panel_empty"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent")]
fn a_loader_that_does_not_wait_for_the_hand_over_races() {
    // After eight panels of other tiles a consumer's buffers' parities are those of fresh barriers.
    model("own tiles in turns, mutant", 1, 3, 4, Timing::Early, Some(Mutant::NoWait(Role::Loader, "handover")));
}

#[test]
#[should_panic(expected = "Loader waits for Handover")]
fn a_lost_hand_over_stops_the_cta() {
    mutant(Mutant::NoArrive("handover"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_result_committed_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("result_full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent")]
fn a_buffer_returned_to_the_loader_without_a_release_races() {
    // Three own tiles a consumer: the first of its four buffers is used again.
    let mutant = Mutant::RelaxedArrive("partial_empty");
    model("own tiles in turns, mutant", 1, 2, 6, Timing::Early, Some(mutant));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_result_freed_before_its_copy_has_read_it_races() {
    mutant(Mutant::NoGroupRead);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_peers_panel_that_is_not_waited_for_races() {
    mutant(Mutant::NoWait(Role::Consumer(0), "partial_full"));
}

#[test]
#[should_panic(expected = "a bulk load follows an acquire without a proxy fence")]
fn a_peers_panel_loaded_without_the_proxy_fence_is_noticed() {
    mutant(Mutant::NoProxyFence(Role::Loader));
}
