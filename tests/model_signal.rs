//! Model of `put_signal` and `wait_signal` with the payload that they order, between ranks and within one.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Memory, Mutant, check};
use std::sync::Arc;
use tilewire_kernels::abi::WaitKind;
use tilewire_kernels::comm::signal::{put_local_signal, put_signal, wait_local_signal, wait_signal};
use tilewire_kernels::config::{PANEL_BYTES, Tile, TileConfig};
use tilewire_kernels::machine::{BulkCopy, Mbarriers};
use tilewire_kernels::pipeline::wait::wait_mbarrier;
use tilewire_kernels::shape::{GlobalAddr, Parity, Role};

type Config = Tile<64, 64, 2>;
type Role64 = Agent<Config>;

const TILES: u32 = 2;
const EPOCH: u32 = 7;

fn word(tile: u32) -> GlobalAddr {
    GlobalAddr(4 * tile as u64)
}

fn slot(tile: u32) -> GlobalAddr {
    GlobalAddr(4096 + tile as u64 * PANEL_BYTES as u64)
}

/// Stores tile `tile` from its own panel of shared memory, as one bulk group.
fn store(m: &Role64, tile: u32) {
    let src = Config::SMEM.panel(0, tile);
    m.cta.panels(src, PANEL_BYTES)[0].write(100 + tile);
    m.store_bytes(slot(tile), src, PANEL_BYTES);
    m.commit_group();
}

/// Both tiles under way before the first one's signal, as the staged transport sends them.
fn send(m: Role64) {
    store(&m, 0);
    store(&m, 1);
    put_signal::<1, _>(&m, word(0), EPOCH);
    put_signal::<0, _>(&m, word(1), EPOCH);
    m.finish();
}

/// Reads every tile by loads, in the other order than the one in which they come.
fn receive(m: Role64) {
    for tile in (0..TILES).rev() {
        wait_signal(&m, m.role, WaitKind::Signal, tile, word(tile), EPOCH).expect("nothing aborts");
        assert_eq!(m.cta.memory.payload(slot(tile)).read(), 100 + tile);
    }
}

fn send_locally(m: Role64) {
    for tile in 0..TILES {
        store(&m, tile);
        put_local_signal::<0, _>(&m, word(tile), EPOCH);
    }
    m.finish();
}

/// Brings every tile to shared memory by the copy engine.
fn receive_by_copy(m: Role64) {
    for tile in 0..TILES {
        wait_local_signal(&m, m.role, WaitKind::Staged, tile, word(tile), EPOCH).expect("nothing aborts");
        m.fence_proxy_async_global();
        let (stage, full) = (Config::SMEM.stage(tile), Config::SMEM.full().at(tile));
        m.arrive_expect_tx(full, PANEL_BYTES);
        m.load_bytes(stage, slot(tile), PANEL_BYTES, full);
        wait_mbarrier(&m, m.role, WaitKind::StageFull, tile, full, Parity::of_phase(0)).expect("nothing aborts");
        assert_eq!(m.cta.panels(stage, PANEL_BYTES)[0].read(), 100 + tile);
    }
}

fn model(name: &str, mutant: Option<Mutant>, sender: fn(Role64), receiver: fn(Role64)) {
    check(name, 3, move || {
        let mut memory = Memory::default();
        for tile in 0..TILES {
            memory.add_word("signal", word(tile), EPOCH - 1);
            memory.add_payload(slot(tile), 0);
        }
        let memory = Arc::new(memory);
        let from = Cta::new(memory.clone(), mutant).start().agent(Role::Storer);
        let to = Cta::new(memory, mutant).start().agent(Role::Loader);
        let sender = thread::spawn(move || sender(from));
        receiver(to);
        sender.join().expect("the role ends");
    });
}

fn mutant(mutant: Mutant) {
    model("signal, mutant", Some(mutant), send, receive);
}

#[test]
fn what_was_stored_before_a_signal_is_there_after_it() {
    model("signal, between ranks, two tiles in flight", None, send, receive);
}

#[test]
fn what_was_stored_before_a_local_signal_is_there_for_the_copy_engine_after_it() {
    model("signal, within a rank, read by copies", None, send_locally, receive_by_copy);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_signal_that_does_not_release_its_payload_races() {
    mutant(Mutant::RelaxedStore("signal"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_wait_that_does_not_acquire_the_payload_races() {
    mutant(Mutant::RelaxedLoad("signal"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_signal_sent_before_its_copies_are_written_races() {
    mutant(Mutant::NoGroupComplete);
}

#[test]
#[should_panic(expected = "a signal is released after bulk stores without a proxy fence")]
fn a_signal_without_the_proxy_fence_is_noticed() {
    mutant(Mutant::NoProxyFence(Role::Storer));
}

#[test]
#[should_panic(expected = "a bulk load follows an acquire without a proxy fence")]
fn a_bulk_load_without_the_proxy_fence_is_noticed() {
    model("signal, mutant", Some(Mutant::NoProxyFence(Role::Loader)), send_locally, receive_by_copy);
}

#[test]
#[should_panic(expected = "assertion `left == right` failed\n  left: 0\n right: 101")]
fn an_epoch_that_is_off_by_one_reads_what_was_there() {
    mutant(Mutant::Ahead("signal", 1));
}
