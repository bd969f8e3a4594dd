//! Model of consumers that take turns over ranks: tiles of other owners and own ones between them, through the buffers
//! that the loader fills or hands on empty. Storer, loader and both consumers of one CTA.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Open, Problem, Timing, check, d_panel};
use std::sync::Arc;
use tilewire_kernels::abi::{GemmReduceScatterArgs, Mix, Placement, Transport};
use tilewire_kernels::collective::ping_pong::HALVES;
use tilewire_kernels::config::{PANEL_BUFS, PANEL_BYTES, PANEL_ROWS, Tile, TileConfig};
use tilewire_kernels::kernels::{Kernel, gemm_reduce_scatter_ping_pong::GemmReduceScatterPingPong};
use tilewire_kernels::schedule::chunked::ChunkedTiles;
use tilewire_kernels::schedule::mixed::MixedTiles;
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

const EPOCH: u32 = 5;
const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };
/// The rank whose CTA runs; the peers' partials are there already.
const RANK: Rank = Rank(0);

/// One panel a half.
type C = Tile<128, 64, 2>;
type K = GemmReduceScatterPingPong<C, 2, PANEL_BUFS>;

/// What `peer`'s slot holds of panel `panel` of tile `tile`, counted through both halves.
fn peers_panel(peer: Rank, tile: u32, panel: u32) -> u32 {
    peer.0 * 10_000 + tile * 1000 + panel
}

/// Who computes how much, and in which order.
#[derive(Clone, Copy)]
struct Case {
    world: u32,
    /// For each owner.
    tiles: u32,
    head_start: u32,
}

impl Case {
    fn mixed_tiles(self) -> MixedTiles {
        let Self { world, tiles, head_start } = self;
        let (m, n, shard) = (C::TILE_M * world, tiles * C::TILE_N, C::TILE_M);
        let (tile_m, tile_n, group, row_align) = (C::TILE_M, C::TILE_N, 8, C::ROW_ALIGN);
        let tiles = ChunkedTiles { m, n, rank: RANK, world, shard, tile_m, tile_n, group, row_align };
        MixedTiles { tiles, at: AT, mix: Mix::new(&tiles, AT.num_ctas, head_start) }
    }

    /// The turn at own tile `tile`.
    fn turn_at(self, tile: u32) -> u32 {
        let is_it = |turn: &u32| self.mixed_tiles().nth(*turn).is_some_and(|t| (t.owner, t.index) == (RANK, tile));
        (0..self.world * self.tiles).find(is_it).expect("every own tile has a turn")
    }
}

fn model(name: &str, preemptions: usize, case: Case, timing: Timing, mutant: Option<Mutant>) {
    let (transport, placement) = (Transport::Push, Placement::Epilogue);
    let Case { world, tiles, .. } = case;
    let problem = Problem { m: C::TILE_M * world, n: tiles * C::TILE_N, k: C::TILE_K, world, transport, placement };
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
        (cta.d, cta.timing, cta.open) = (problem.d(RANK), timing, Open::Operands);
        let cta = cta.start_by(K::setup);
        let args = GemmReduceScatterArgs { mix: case.mixed_tiles().mix, ..problem.args::<C>(RANK) };
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
            // Each consumer counts its accumulators from 1, two a turn.
            let mine = (case.turn_at(tile) / 2 * 2 + half + 1) * 100;
            let sum: u32 = mine + peers().map(|peer| peers_panel(peer, tile, half)).sum::<u32>();
            let at = d_panel(problem.d(RANK), half * PANEL_ROWS, tile * C::TILE_N);
            assert_eq!(memory.payload(at).read(), sum, "another sum arrived in D: tile {tile}, half {half}");
        }
    });
}

/// Both consumers have tiles for the peer, then own ones.
const LAST: Case = Case { world: 2, tiles: 2, head_start: 2 };
/// One consumer has the tiles for the peer, the other the own ones.
const BETWEEN: Case = Case { world: 2, tiles: 2, head_start: 1 };
/// One consumer has tiles for the peer and then an own one, the other the opposite.
const BOTH: Case = Case { world: 2, tiles: 3, head_start: 2 };

/// No peers.
const ALONE: Case = Case { world: 1, tiles: 3, head_start: 1 };

fn mutant(mutant: Mutant) {
    model("turns over ranks, mutant", 1, BOTH, Timing::Early, Some(mutant));
}

#[test]
fn own_tiles_may_come_last() {
    model("turns over ranks, 2 ranks, 2 tiles, own ones last", 1, LAST, Timing::Early, None);
}

#[test]
fn own_tiles_may_come_between_others() {
    model("turns over ranks, 2 ranks, 2 tiles, own ones between", 1, BETWEEN, Timing::Early, None);
}

#[test]
fn a_consumer_may_have_tiles_of_both_kinds() {
    model("turns over ranks, 2 ranks, 3 tiles, own ones between", 1, BOTH, Timing::Early, None);
}

#[test]
fn a_consumer_may_have_one_turn_in_all() {
    let one = Case { world: 2, tiles: 1, head_start: 1 };
    model("turns over ranks, 2 ranks, 1 tile", 2, one, Timing::Early, None);
}

#[test]
fn peers_panels_that_land_late_are_waited_for() {
    model("turns over ranks, 2 ranks, 2 tiles, loads late", 1, LAST, Timing::Late, None);
}

#[test]
fn panels_of_two_peers_are_added_in_rank_order() {
    let three = Case { world: 3, tiles: 1, head_start: 1 };
    model("turns over ranks, 3 ranks, 1 tile", 1, three, Timing::Early, None);
}

#[test]
fn without_peers_results_go_through_empty_buffers() {
    model("turns over ranks, 1 rank, 3 tiles", 1, ALONE, Timing::Early, None);
}

#[test]
#[should_panic(expected = "deadlock: Storer waits for ResultFull 0")]
fn a_buffer_handed_on_twice_stops_the_cta() {
    // Three tiles a consumer: the first of its four buffers is used again, a lap ahead.
    mutant(Mutant::NoWait(Role::Loader, "partial_empty"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent")]
fn a_buffer_written_before_the_loader_hands_it_on_races() {
    mutant(Mutant::NoWait(Role::Consumer(0), "partial_full"));
}

#[test]
#[should_panic(expected = "waits for PartialFull")]
fn a_buffer_that_is_never_handed_on_stops_the_cta() {
    model("turns over ranks, mutant", 1, ALONE, Timing::Early, Some(Mutant::NoArrive("partial_full")));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_result_committed_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("result_full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent")]
fn a_buffer_returned_to_the_loader_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("partial_empty"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_result_freed_before_its_copy_has_read_it_races() {
    mutant(Mutant::NoGroupRead);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_peers_panel_that_is_not_waited_for_races() {
    model(
        "turns over ranks, mutant",
        1,
        BETWEEN,
        Timing::Early,
        Some(Mutant::NoWait(Role::Consumer(1), "partial_full")),
    );
}

#[test]
#[should_panic(expected = "a bulk load follows an acquire without a proxy fence")]
fn a_peers_panel_loaded_without_the_proxy_fence_is_noticed() {
    mutant(Mutant::NoProxyFence(Role::Loader));
}
