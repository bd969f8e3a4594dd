//! Memory that loom watches: payload cells, and the words of workspaces.

use super::exchange::Flagged;
use super::waiting::{Key, Waiting};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32 as Plain, Ordering};
use tilewire_kernels::comm::workspace::Workspace;
use tilewire_kernels::config::PANEL_BYTES;
use tilewire_kernels::shape::{GlobalAddr, Rank};

/// What a copy's destination holds from its issue to its end.
pub const POISON: u32 = 0xFFFF_FFFF;

/// Bytes from one row of a rank's D to the next.
pub const D_STRIDE: u64 = 4096;

/// One panel's content as one number.
pub struct Payload(UnsafeCell<u32>);

// SAFETY: loom fails the model if two accesses race, which is what the models are for.
unsafe impl Sync for Payload {}

impl Payload {
    pub fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[track_caller]
    pub fn read(&self) -> u32 {
        // SAFETY: loom fails the model before a racing access.
        self.0.with(|value| unsafe { *value })
    }

    #[track_caller]
    pub fn write(&self, new: u32) {
        // SAFETY: loom fails the model before a racing access.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

/// One word that agents of several CTAs or ranks share.
pub struct Word {
    pub name: &'static str,
    value: AtomicU32,
    /// The latest value, which a load need not see yet.
    latest: Plain,
    /// How often it was stored to.
    stores: Plain,
}

impl Word {
    fn new(name: &'static str, value: u32) -> Self {
        Self { name, value: AtomicU32::new(value), latest: Plain::new(value), stores: Plain::new(0) }
    }

    pub fn key(&self) -> Key {
        self as *const Self as Key
    }

    /// The value found, and whether a later one exists already. With `fresh` the latest one is found.
    ///
    /// A fresh look is a read-modify-write. loom orders those among each other, but not among plain stores: a word is
    /// either looked at and stored to fresh by everybody, or by nobody.
    #[track_caller]
    pub fn look(&self, order: Ordering, fresh: bool) -> (u32, bool) {
        let value = if fresh { self.value.fetch_add(0, order) } else { self.value.load(order) };
        (value, value != self.latest.load(Ordering::Relaxed))
    }

    #[track_caller]
    pub fn load(&self, order: Ordering) -> u32 {
        self.value.load(order)
    }

    #[track_caller]
    pub fn store(&self, value: u32, order: Ordering, fresh: bool) {
        if fresh {
            self.value.swap(value, order);
        } else {
            self.value.store(value, order);
        }
        self.latest.store(value, Ordering::Relaxed);
        self.stores.fetch_add(1, Ordering::Relaxed);
    }

    #[track_caller]
    pub fn swap(&self, value: u32, order: Ordering) -> u32 {
        let before = self.value.swap(value, order);
        self.latest.store(value, Ordering::Relaxed);
        before
    }

    #[track_caller]
    pub fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let before = self.value.fetch_add(value, order);
        self.latest.store(before.wrapping_add(value), Ordering::Relaxed);
        before
    }
}

/// Global memory of all ranks: only what a model declares exists.
#[derive(Default)]
pub struct Memory {
    pub waiting: Waiting,
    words: BTreeMap<GlobalAddr, Word>,
    payload: BTreeMap<GlobalAddr, Payload>,
    flagged: BTreeMap<GlobalAddr, Flagged>,
}

impl Memory {
    pub fn add_word(&mut self, name: &'static str, addr: GlobalAddr, value: u32) {
        assert!(self.words.insert(addr, Word::new(name, value)).is_none(), "two words at {addr:?}");
    }

    pub fn add_payload(&mut self, addr: GlobalAddr, value: u32) {
        assert!(self.payload.insert(addr, Payload::new(value)).is_none(), "two payloads at {addr:?}");
    }

    /// The words of `rank`'s workspace at rest before call `epoch`, and its slots.
    pub fn add_workspace(&mut self, own: Workspace, rank: Rank, epoch: u32) {
        self.add_word("epoch", own.epoch(), epoch);
        self.add_word("exit_count", own.exit_count(), 0);
        self.add_word("abort", own.abort(), 0);
        self.add_word("claim", own.claim(), 0);
        for peer in (0..own.world).map(Rank) {
            if peer != rank {
                self.add_word("credit", own.credit(peer), epoch.wrapping_sub(1));
            }
            for tile in 0..own.slot_tiles {
                self.add_word("signal", own.signal(peer, tile), epoch.wrapping_sub(1));
                self.add_word("staged", own.staged(peer, tile), epoch.wrapping_sub(1));
                for panel in 0..own.tile_bytes / PANEL_BYTES {
                    let within = (panel * PANEL_BYTES) as u64;
                    self.add_payload(own.slot(0, peer, tile).plus(within), 0);
                    self.add_payload(own.slot(1, peer, tile).plus(within), 0);
                    self.add_payload(own.staging(peer, tile).plus(within), 0);
                }
            }
        }
    }

    /// The flagged words of `rank`'s workspace before call `epoch`: of one tile of one panel, for chunks of `shard` rows.
    pub fn add_flagged(&mut self, own: Workspace, rank: Rank, epoch: u32, panel_bytes: u64) {
        for peer in (0..own.world).map(Rank).filter(|peer| *peer != rank) {
            for parity in 0..2 {
                let at = own.flagged(parity, peer, [0, 1], panel_bytes);
                self.flagged.insert(at, Flagged::new(epoch.wrapping_sub(1)));
            }
        }
    }

    /// The panels of a D of `tiles_m` × `panels_n` panels at `d`.
    pub fn add_d(&mut self, d: GlobalAddr, panel_rows: u32, panel_cols: u32) {
        for row in 0..panel_rows {
            for col in 0..panel_cols {
                self.add_payload(d_panel(d, row * 64, col * 64), 0);
            }
        }
    }

    #[track_caller]
    pub fn word(&self, addr: GlobalAddr) -> &Word {
        self.words.get(&addr).unwrap_or_else(|| panic!("no word at {addr:?}"))
    }

    #[track_caller]
    pub fn flagged(&self, addr: GlobalAddr) -> &Flagged {
        self.flagged.get(&addr).unwrap_or_else(|| panic!("no flagged words at {addr:?}"))
    }

    #[track_caller]
    pub fn payload(&self, addr: GlobalAddr) -> &Payload {
        self.payload.get(&addr).unwrap_or_else(|| panic!("no payload at {addr:?}"))
    }

    /// The word's value, for a thread that has joined all others.
    #[track_caller]
    pub fn value(&self, addr: GlobalAddr) -> u32 {
        self.word(addr).load(Ordering::Acquire)
    }

    /// How often the word was stored to.
    pub fn stores(&self, addr: GlobalAddr) -> u32 {
        self.word(addr).stores.load(Ordering::Relaxed)
    }
}

/// Address of the panel of D whose first element is at (`row`, `col`).
pub fn d_panel(d: GlobalAddr, row: u32, col: u32) -> GlobalAddr {
    d.plus(row as u64 * D_STRIDE + col as u64 * 2)
}
