//! Model of consumers that multiply whole tiles in turns: one ring of stages, each stage read by the one whose tile it is of.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Timing, check, multiplied};
use std::sync::Arc;
use tilewire_kernels::collective::mainloop::load_operands;
use tilewire_kernels::collective::ping_pong::{Turn, init_turn_barriers, multiply_whole};
use tilewire_kernels::collective::setup::operand_ring;
use tilewire_kernels::config::{PANEL_ROWS, Tile, TileConfig};
use tilewire_kernels::machine::WarpgroupMma;
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

const STAGES: u32 = 2;
/// Both consumers have a tile, and the first has another.
const TILES: u32 = 3;
const ROW: u32 = 128;

type C = Tile<128, 64, STAGES>;

/// First column of a tile.
fn col(tile: u32) -> u32 {
    64 * (tile + 1)
}

fn produce(m: Agent<C>, k_tiles: u32) {
    let ring = operand_ring::<_, C, STAGES>(&m, Role::Producer);
    let mut state = PipelineState::start();
    for tile in 0..TILES {
        let k = [0, k_tiles];
        load_operands::<_, C, STAGES>(&ring, &mut state, ROW, col(tile), k, [C::A_BOX, C::B_BOX])
            .expect("nothing aborts");
    }
    m.finish();
}

fn consume(m: Agent<C>, consumer: u32, k_tiles: u32) {
    let ring = operand_ring::<_, C, STAGES>(&m, Role::Consumer(consumer));
    let mut state = PipelineState::start().advanced_by(consumer * k_tiles);
    let mut turn = Turn::start(consumer);
    let (mut top, mut bottom) = (m.zero_acc(), m.zero_acc());
    for tile in (consumer..TILES).step_by(2) {
        turn.wait::<_, C>(&m).expect("nothing aborts");
        let pass = || turn.pass::<_, C>(&m);
        let rows = [PANEL_ROWS; 2];
        if k_tiles > 0 {
            multiply_whole::<_, C, STAGES>(&ring, &mut state, k_tiles, rows, &mut top, &mut bottom, pass)
                .expect("nothing aborts");
        } else {
            pass();
        }
        for (half, acc) in [&top, &bottom].into_iter().enumerate() {
            let whole = multiplied::<C>(ROW, col(tile), half as u32, 0..k_tiles);
            assert_eq!(acc.sum, whole, "consumer {consumer} multiplied another stage than its own");
        }
        state = state.advanced_by(k_tiles);
    }
}

fn model(name: &str, preemptions: usize, k_tiles: u32, timing: Timing, mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let mut cta = Cta::<C>::new(Arc::default(), mutant);
        cta.timing = timing;
        let cta = cta.start_by(init_turn_barriers::<_, C>);
        let (producer, second) = (cta.agent(Role::Producer), cta.agent(Role::Consumer(1)));
        let others =
            [thread::spawn(move || produce(producer, k_tiles)), thread::spawn(move || consume(second, 1, k_tiles))];
        consume(cta.agent(Role::Consumer(0)), 0, k_tiles);
        for other in others {
            other.join().expect("the role ends");
        }
    });
}

#[test]
fn each_consumer_multiplies_the_stages_of_its_own_tiles() {
    model("turns, 1 stage a tile, loads early", 2, 1, Timing::Early, None);
}

#[test]
fn tiles_of_more_stages_than_the_ring_has_are_multiplied_in_turns() {
    model("turns, 3 stages a tile, loads early", 1, 3, Timing::Early, None);
}

#[test]
fn loads_may_land_late() {
    model("turns, 1 stage a tile, loads late", 2, 1, Timing::Late, None);
}

#[test]
fn tiles_without_stages_are_turns_too() {
    model("turns, no stage", 2, 0, Timing::Early, None);
}

#[test]
#[should_panic(expected = "Consumer(1) waits for Turn 1")]
fn a_turn_that_is_not_given_is_waited_for() {
    model("turns, mutant", 2, 1, Timing::Early, Some(Mutant::NoArrive("turn")));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_consumer_that_does_not_wait_for_its_turn_takes_the_others_stages() {
    model("turns, mutant", 2, 2, Timing::Early, Some(Mutant::NoWait(Role::Consumer(1), "turn")));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_release_that_does_not_order_the_reads_before_it_races() {
    model("turns, mutant", 2, 1, Timing::Early, Some(Mutant::RelaxedArrive("empty")));
}

#[test]
#[should_panic(expected = "a stage changed while the tensor cores read it")]
fn a_multiplication_that_is_not_waited_for_races() {
    model("turns, mutant", 2, 3, Timing::Early, Some(Mutant::NoMmaWait));
}
