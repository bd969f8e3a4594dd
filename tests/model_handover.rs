//! Model of the hand-over of the panel buffers, from the ring between consumer and storer to the ring of peers' partials:
//! storer, loader and consumer of one CTA of GEMM + ReduceScatter with reduction in the epilogue.

mod model_machine;

use loom::thread;
use model_machine::{Cta, Mutant, Problem, Timing, check, d_panel};
use std::sync::Arc;
use tilewire_kernels::abi::{Placement, Transport};
use tilewire_kernels::config::{PANEL_BUFS, PANEL_BYTES, Tile, TileConfig};
use tilewire_kernels::kernels::{Kernel, gemm_reduce_scatter::GemmReduceScatter};
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

const EPOCH: u32 = 5;
const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };
/// The rank whose CTA runs; the peers' partials are there already.
const RANK: Rank = Rank(0);

/// One panel a tile.
type Narrow = Tile<64, 64, 2>;
/// Two panels a tile.
type Wide = Tile<64, 128, 2>;

/// What `peer`'s slot holds of panel `panel` of tile `tile`.
fn peers_panel(peer: Rank, tile: u32, panel: u32) -> u32 {
    peer.0 * 10_000 + tile * 1000 + panel
}

fn model<C: TileConfig>(name: &str, preemptions: usize, world: u32, n: u32, timing: Timing, mutant: Option<Mutant>) {
    let (transport, placement) = (Transport::Push, Placement::Epilogue);
    let problem = Problem { m: 64 * world, n, k: 0, world, transport, placement };
    let tiles = n / C::TILE_N;
    check(name, preemptions, move || {
        let memory = problem.memory::<C>(EPOCH);
        let own = problem.workspace::<C>(RANK);
        let peers = || problem.ranks().filter(|peer| *peer != RANK);
        for (peer, tile) in peers().flat_map(|peer| (0..tiles).map(move |tile| (peer, tile))) {
            for panel in 0..C::PANELS {
                let slot = own.slot(EPOCH, peer, tile).plus((panel * PANEL_BYTES) as u64);
                memory.payload(slot).write(peers_panel(peer, tile, panel));
            }
            memory.word(own.signal(peer, tile)).store(EPOCH, std::sync::atomic::Ordering::Release, false);
        }
        let memory = Arc::new(memory);
        let mut cta = Cta::<C>::new(memory.clone(), mutant);
        (cta.d, cta.timing) = (problem.d(RANK), timing);
        let cta = cta.start();
        let args = problem.args::<C>(RANK);
        let movers = [Role::Storer, Role::Loader].map(|role| cta.agent(role)).map(|m| {
            thread::spawn(move || {
                GemmReduceScatter::<C, 2, PANEL_BUFS>::mover(&m, &args, AT, m.role).expect("nothing aborts");
                m.finish();
            })
        });
        {
            let m = cta.agent(Role::Consumer(0));
            GemmReduceScatter::<C, 2, PANEL_BUFS>::consumer(&m, &args, AT, 0).expect("nothing aborts");
        }
        for mover in movers {
            mover.join().expect("the role ends");
        }
        for (tile, panel) in (0..tiles).flat_map(|tile| (0..C::PANELS).map(move |panel| (tile, panel))) {
            // The CTA's tiles are counted from 1, own tiles last.
            let mine = ((world - 1) * tiles + tile + 1) * 100 + panel;
            let sum: u32 = mine + peers().map(|peer| peers_panel(peer, tile, panel)).sum::<u32>();
            let at = d_panel(problem.d(RANK), 0, tile * C::TILE_N + panel * C::PANEL_COLS);
            assert_eq!(memory.payload(at).read(), sum, "another sum arrived in D");
        }
    });
}

fn mutant(mutant: Mutant) {
    model::<Narrow>("hand-over, mutant", 2, 2, 192, Timing::Early, Some(mutant));
}

#[test]
fn peers_panels_never_land_in_a_buffer_that_is_still_stored_from() {
    model::<Narrow>("hand-over, 2 ranks, 3 tiles of 1 panel", 3, 2, 192, Timing::Early, None);
}

#[test]
fn peers_panels_that_land_late_are_waited_for() {
    model::<Narrow>("hand-over, 2 ranks, 3 tiles of 1 panel, loads late", 3, 2, 192, Timing::Late, None);
}

#[test]
fn tiles_of_two_panels_go_through_the_same_two_buffers() {
    model::<Wide>("hand-over, 2 ranks, 1 tile of 2 panels", 3, 2, 128, Timing::Early, None);
}

#[test]
fn panels_of_two_peers_are_added_in_turn() {
    model::<Narrow>("hand-over, 3 ranks, 2 tiles of 1 panel", 2, 3, 128, Timing::Early, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_hand_over_without_the_storers_last_reads_races() {
    mutant(Mutant::NoWait(Role::Loader, "panel_empty"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent write accesses")]
fn a_loader_that_does_not_wait_for_the_hand_over_races() {
    // After eight panels of other tiles the buffers' parities are those of fresh barriers.
    let mutant = Mutant::NoWait(Role::Loader, "handover");
    model::<Narrow>("hand-over, mutant", 2, 3, 256, Timing::Early, Some(mutant));
}

#[test]
#[should_panic(
    expected = "deadlock: Storer waits for ResultFull 0, Loader waits for Handover 0, Consumer(0) waits for PartialFull 0"
)]
fn a_lost_hand_over_stops_the_cta() {
    mutant(Mutant::NoArrive("handover"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_result_committed_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("result_full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent write accesses")]
fn a_buffer_returned_to_the_loader_without_a_release_races() {
    // Five own panels: the first of the four buffers is used again.
    let mutant = Mutant::RelaxedArrive("partial_empty");
    model::<Narrow>("hand-over, mutant", 2, 2, 320, Timing::Early, Some(mutant));
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
