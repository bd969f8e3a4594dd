//! Model of the operand ring: producer, copy engine, one or two consumers, and tensor cores that read late.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Timing, check, multiplied};
use std::sync::Arc;
use tilewire_kernels::collective::mainloop::{load_operands, multiply};
use tilewire_kernels::collective::setup::operand_ring;
use tilewire_kernels::config::{E4m3, Nt, PANEL_ROWS, Tile, TileConfig};
use tilewire_kernels::machine::WarpgroupMma;
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

const STAGES: u32 = 2;
/// Three uses of two stages: one is used again.
const K_TILES: u32 = 3;
const ROW: u32 = 64;
const COL: u32 = 192;

type OneConsumer = Tile<64, 64, STAGES>;
type TwoConsumers = Tile<128, 64, STAGES>;
/// A consumer that waits for each multiplication and promotes its sums.
type Promoting = Tile<64, 128, STAGES, Nt, E4m3>;

fn produce<C: TileConfig>(m: Agent<C>) {
    let ring = operand_ring::<_, C, STAGES>(&m, Role::Producer);
    let mut state = PipelineState::start();
    load_operands::<_, C, STAGES>(&ring, &mut state, ROW, COL, [0, K_TILES], [C::A_BOX, C::B_BOX])
        .expect("nothing aborts");
    ring.producer_tail(state, STAGES).expect("nothing aborts");
    // After the tail the stages are the producer's own.
    for stage in 0..STAGES {
        for panel in m.cta.panels(C::SMEM.stage(stage), C::STAGE_BYTES) {
            panel.write(0);
        }
    }
    m.finish();
}

fn consume<C: TileConfig>(m: Agent<C>, consumer: u32) {
    let ring = operand_ring::<_, C, STAGES>(&m, Role::Consumer(consumer));
    let (mut state, mut acc) = (PipelineState::start(), m.zero_acc());
    multiply::<_, C, STAGES>(&ring, &mut state, consumer, [PANEL_ROWS, C::TILE_N], K_TILES, &mut acc)
        .expect("nothing aborts");
    assert_eq!(acc.sum, multiplied::<C>(ROW, COL, consumer, 0..K_TILES), "a consumer multiplied another stage");
}

fn model<C: TileConfig>(name: &str, preemptions: usize, timing: Timing, mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let mut cta = Cta::<C>::new(Arc::default(), mutant);
        cta.timing = timing;
        let cta = cta.start();
        let producer = cta.agent(Role::Producer);
        let mut others = vec![thread::spawn(move || produce(producer))];
        for consumer in 1..C::CONSUMERS {
            let agent = cta.agent(Role::Consumer(consumer));
            others.push(thread::spawn(move || consume(agent, consumer)));
        }
        consume(cta.agent(Role::Consumer(0)), 0);
        for other in others {
            other.join().expect("the role ends");
        }
    });
}

fn mutant(mutant: Mutant) {
    model::<OneConsumer>("pipeline, mutant", 2, Timing::Early, Some(mutant));
}

#[test]
fn a_stage_is_never_overwritten_while_it_is_read() {
    model::<OneConsumer>("pipeline, 1 consumer, loads early", 3, Timing::Early, None);
}

#[test]
fn a_stage_is_never_overwritten_while_it_is_read_with_several_loads_in_flight() {
    model::<OneConsumer>("pipeline, 1 consumer, loads late", 3, Timing::Late, None);
}

#[test]
fn a_stage_is_free_only_when_both_consumers_have_read_it() {
    model::<TwoConsumers>("pipeline, 2 consumers, loads early", 2, Timing::Early, None);
}

#[test]
fn a_stage_is_free_when_its_product_is_there_and_the_product_is_promoted_then() {
    model::<Promoting>("pipeline, 1 consumer that promotes, loads early", 3, Timing::Early, None);
    model::<Promoting>("pipeline, 1 consumer that promotes, loads late", 3, Timing::Late, None);
}

#[test]
#[should_panic(expected = "deadlock: Consumer(0) waits for StageFull 0")]
fn a_producer_that_does_not_wait_for_an_empty_stage_laps_its_consumer() {
    mutant(Mutant::NoWait(Role::Producer, "empty"));
}

#[test]
#[should_panic(expected = "a consumer multiplied another stage")]
fn a_consumer_that_does_not_wait_for_a_full_stage_multiplies_what_was_there() {
    mutant(Mutant::NoWait(Role::Consumer(0), "full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_release_that_does_not_order_the_reads_before_it_races() {
    mutant(Mutant::RelaxedArrive("empty"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_wait_that_does_not_acquire_the_copies_races() {
    mutant(Mutant::RelaxedWait("full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_copy_that_completes_without_releasing_its_bytes_races() {
    mutant(Mutant::RelaxedCopy);
}

#[test]
#[should_panic(expected = "a stage changed while the tensor cores read it")]
fn a_stage_released_while_the_tensor_cores_read_it_changes_under_them() {
    mutant(Mutant::NoMmaWait);
}

#[test]
#[should_panic(expected = "deadlock: Producer waits for StageEmpty 0, Consumer(0) waits for StageFull 0")]
fn a_lost_release_stops_the_producer() {
    mutant(Mutant::NoArrive("empty"));
}

#[test]
#[should_panic(expected = "a copy brought more bytes than were announced")]
fn bytes_that_nobody_announced_are_noticed() {
    mutant(Mutant::NoArrive("full"));
}
