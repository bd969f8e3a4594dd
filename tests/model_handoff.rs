//! Model of the hand-off of panels from consumers to the storer, whose copies read late.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Memory, Mutant, check};
use std::sync::Arc;
use tilewire_kernels::collective::epilogue::{store_panels, write_panels};
use tilewire_kernels::collective::setup::panel_ring;
use tilewire_kernels::config::{Bf16, FEW_PANEL_BUFS, Nt, PANEL_BUFS, PANEL_BYTES, Tile, TileConfig};
use tilewire_kernels::machine::{BulkCopy, WarpgroupMma};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::{GlobalAddr, Role};

/// Two panels a tile and four tiles: each of four buffers is used twice.
const TILES: u32 = 4;

type OneConsumer = Tile<64, 128, 2>;
type TwoConsumers = Tile<128, 64, 2>;
type FewBuffers = Tile<64, 128, 2, Nt, Bf16, Bf16, FEW_PANEL_BUFS>;

fn destination(tile: u32, consumer: u32, panel: u32) -> GlobalAddr {
    GlobalAddr(((tile * 2 + consumer) * 2 + panel) as u64 * PANEL_BYTES as u64)
}

fn write<C: TileConfig, const BUFS: u32>(m: Agent<C>, consumer: u32) {
    let ring = panel_ring::<_, C, BUFS>(&m, Role::Consumer(consumer), consumer);
    let mut state = PipelineState::start();
    for _ in 0..TILES {
        write_panels::<_, C, _>(&ring, &mut state, consumer, C::PANELS, &m.zero_acc()).expect("nothing aborts");
    }
}

fn store<C: TileConfig, const BUFS: u32>(m: Agent<C>) {
    let mut state = PipelineState::<BUFS>::start();
    for tile in 0..TILES {
        store_panels::<_, C, _>(&m, &mut state, C::PANELS, |consumer, panel, src| {
            m.store_bytes(destination(tile, consumer, panel), src, PANEL_BYTES);
        })
        .expect("nothing aborts");
    }
    m.finish();
}

fn model<C: TileConfig, const BUFS: u32>(name: &str, preemptions: usize, mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let mut memory = Memory::default();
        for (tile, consumer) in (0..TILES).flat_map(|tile| (0..C::CONSUMERS).map(move |consumer| (tile, consumer))) {
            for panel in 0..C::PANELS {
                memory.add_payload(destination(tile, consumer, panel), 0);
            }
        }
        let memory = Arc::new(memory);
        let cta = Cta::<C>::new(memory.clone(), mutant).start();
        let storer = cta.agent(Role::Storer);
        let agents: Vec<_> = (0..C::CONSUMERS).map(|consumer| cta.agent(Role::Consumer(consumer))).collect();
        let consumers: Vec<_> = (0..)
            .zip(agents)
            .map(|(consumer, agent)| thread::spawn(move || write::<C, BUFS>(agent, consumer)))
            .collect();
        store::<C, BUFS>(storer);
        for consumer in consumers {
            consumer.join().expect("the role ends");
        }
        for (tile, consumer) in (0..TILES).flat_map(|tile| (0..C::CONSUMERS).map(move |consumer| (tile, consumer))) {
            for panel in 0..C::PANELS {
                let stored = memory.payload(destination(tile, consumer, panel)).read();
                assert_eq!(stored, (tile + 1) * 100 + panel, "another panel was stored");
            }
        }
    });
}

fn mutant(mutant: Mutant) {
    model::<OneConsumer, PANEL_BUFS>("hand-off, mutant", 2, Some(mutant));
}

#[test]
fn a_panel_buffer_is_never_overwritten_while_the_copy_engine_reads_it() {
    model::<OneConsumer, PANEL_BUFS>("hand-off, 1 consumer, 2 panels", 3, None);
}

#[test]
fn two_consumers_hand_their_panels_to_one_storer() {
    model::<TwoConsumers, PANEL_BUFS>("hand-off, 2 consumers, 1 panel", 3, None);
}

#[test]
fn few_buffers_are_handed_on_alike() {
    model::<FewBuffers, FEW_PANEL_BUFS>("hand-off, 1 consumer, 2 panels, 2 buffers", 2, None);
}

#[test]
#[should_panic(expected = "a source changed while the copy engine read it")]
fn a_buffer_freed_before_its_copy_has_read_it_changes_under_the_copy() {
    mutant(Mutant::NoGroupRead);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_panel_committed_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("panel_full"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_buffer_freed_without_a_release_races() {
    mutant(Mutant::RelaxedArrive("panel_empty"));
}

#[test]
#[should_panic(expected = "deadlock: Storer waits for PanelFull 0")]
fn a_consumer_that_does_not_wait_for_its_buffer_laps_the_storer() {
    mutant(Mutant::NoWait(Role::Consumer(0), "panel_empty"));
}

#[test]
#[should_panic(expected = "deadlock: Consumer(0) waits for PanelEmpty 0")]
fn a_storer_that_does_not_wait_for_the_panel_laps_its_consumer() {
    mutant(Mutant::NoWait(Role::Storer, "panel_full"));
}

#[test]
#[should_panic(expected = "deadlock: Storer waits for PanelFull 0, Consumer(0) waits for PanelEmpty 0")]
fn a_lost_release_of_a_buffer_stops_both() {
    mutant(Mutant::NoArrive("panel_empty"));
}
