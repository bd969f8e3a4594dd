//! Model of a plain GEMM with an epilogue: loader, consumer and storer of one CTA, whose panel buffers go round among them.

mod model_machine;

use loom::thread;
use model_machine::{Cta, Memory, Mutant, Problem, Timing, check, d_panel, operand_value};
use std::sync::Arc;
use tilewire_kernels::abi::{EpilogueArgs, GemmArgs, GemmEpilogueArgs, Operand, Placement, Source, Transport};
use tilewire_kernels::config::{PANEL_BUFS, Tile, TileConfig};
use tilewire_kernels::kernels::{Kernel, gemm_epilogue::GemmEpilogue};
use tilewire_kernels::shape::{CtaPosition, GlobalAddr, Rank, Role};

const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };
const RANK: Rank = Rank(0);

/// One panel a tile.
type Narrow = Tile<64, 64, 2>;
/// Two panels a tile.
type Wide = Tile<64, 128, 2>;

fn args<C: TileConfig>(problem: &Problem, source: Source) -> GemmEpilogueArgs {
    let none = GlobalAddr(0);
    let Problem { m, n, k, .. } = *problem;
    let gemm = GemmArgs {
        m,
        n,
        k,
        raster_group: 1,
        split_tiles: 0,
        parts: 1,
        shares: none,
        share_room: 0,
        abreast: 0,
        tile_cols: C::TILE_N,
        d: problem.d(RANK),
        d_stride: u64::from(n) * 2,
        scales: [none; 2],
        watchdog: problem.watchdog::<C>(RANK),
    };
    let source = source as u32;
    let (alpha, beta, activation) = (1.0, 1.0, 0);
    let epilogue = EpilogueArgs {
        alpha,
        beta,
        activation,
        source,
        bias: none,
        scale_a: none,
        scale_b: none,
        c: none,
        c_stride: 0,
    };
    GemmEpilogueArgs { gemm, epilogue }
}

fn model<C: TileConfig>(
    name: &str,
    preemptions: usize,
    panels: u32,
    source: Source,
    timing: Timing,
    mutant: Option<Mutant>,
) {
    let n = panels * C::PANEL_COLS;
    let problem = Problem { m: 64, n, k: 0, world: 1, transport: Transport::Push, placement: Placement::Epilogue };
    check(name, preemptions, move || {
        let mut memory = Memory::default();
        memory.add_d(problem.d(RANK), 1, panels);
        let memory = Arc::new(memory);
        let mut cta = Cta::<C>::new(memory.clone(), mutant);
        (cta.d, cta.timing) = (problem.d(RANK), timing);
        let cta = cta.start();
        let args = args::<C>(&problem, source);
        let movers = [Role::Storer, Role::Loader].map(|role| cta.agent(role)).map(|m| {
            thread::spawn(move || {
                GemmEpilogue::<C, 2, PANEL_BUFS>::mover(&m, &args, AT, m.role).expect("nothing aborts");
                m.finish();
            })
        });
        {
            let m = cta.agent(Role::Consumer(0));
            GemmEpilogue::<C, 2, PANEL_BUFS>::consumer(&m, &args, AT, 0).expect("nothing aborts");
        }
        for mover in movers {
            mover.join().expect("the role ends");
        }
        for panel in 0..panels {
            let (tile, col) = (panel / C::PANELS, panel * C::PANEL_COLS);
            // Tiles are counted from 1.
            let product = (tile + 1) * 100 + panel % C::PANELS;
            let added = if source == Source::None { 0 } else { operand_value(Operand::C, 0, col, 0) };
            let stored = memory.payload(d_panel(problem.d(RANK), 0, col)).read();
            assert_eq!(stored, product + added, "another result arrived in D");
        }
    });
}

/// Five panels: the first of the four buffers is used again.
fn mutant(mutant: Mutant) {
    model::<Narrow>("epilogue, mutant", 2, 5, Source::Scaled, Timing::Early, Some(mutant));
}

#[test]
fn panels_of_c_are_finished_in_their_buffers_and_stored() {
    model::<Narrow>("epilogue, 5 tiles of 1 panel", 3, 5, Source::Scaled, Timing::Early, None);
}

#[test]
fn panels_of_c_that_land_late_are_waited_for() {
    model::<Narrow>("epilogue, 5 tiles of 1 panel, loads late", 3, 5, Source::Residual, Timing::Late, None);
}

#[test]
fn buffers_without_addends_go_round_alike() {
    model::<Wide>("epilogue, 3 tiles of 2 panels, nothing added", 3, 6, Source::None, Timing::Early, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent write accesses")]
fn a_panel_of_c_that_is_not_waited_for_races() {
    mutant(Mutant::NoWait(Role::Consumer(0), "partial_full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_result_committed_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("result_full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent write accesses")]
fn a_buffer_returned_to_the_loader_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("partial_empty"));
}

#[test]
#[should_panic(expected = "a source changed while the copy engine read it")]
fn a_result_freed_before_its_copy_has_read_it_races() {
    mutant(Mutant::NoGroupRead);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_result_stops_the_cta() {
    mutant(Mutant::NoArrive("result_full"));
}
