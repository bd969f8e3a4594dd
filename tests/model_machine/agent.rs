//! One role as the machine runs it: barriers and words.

use super::Mutant;
use super::barrier::Barrier;
use super::engine::Engine;
use super::memory::{Memory, Payload};
use super::tensor::Reading;
use super::waiting::Key;
use super::watch::record_of;
use loom::sync::atomic::{Ordering, fence};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use tilewire_kernels::abi::{Wait, Watchdog};
use tilewire_kernels::collective::setup::init_barriers;
use tilewire_kernels::config::{PANEL_BYTES, TileConfig};
use tilewire_kernels::machine::{Mbarriers, PutSignals, Signals};
use tilewire_kernels::shape::{GlobalAddr, Mbarrier, Parity, Role, SmemAddr, WARPS_PER_WARPGROUP};

/// When loads of the copy engine land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Before the role that issued them goes on.
    Early,
    /// When the role that issued them next has to wait, or ends: several are in flight until then.
    Late,
}

/// Barriers of a CTA that end every wait at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    None,
    /// Those of the operands' stages, which hold zeros: a model of what goes on behind the main loop.
    Operands,
    /// A model of what goes on between ranks, which runs a CTA's roles one after the other.
    All,
}

/// One CTA: its shared memory, and the global memory it sees.
pub struct Cta<C> {
    pub memory: Arc<Memory>,
    pub mutant: Option<Mutant>,
    pub timing: Timing,
    pub watchdog: Option<Watchdog>,
    /// This rank's D.
    pub d: GlobalAddr,
    pub open: Open,
    /// Loads of words find the latest value. Else they find any that the memory order allows, which multiplies the
    /// interleavings of models with many words.
    pub words_are_fresh: bool,
    panels: Vec<Payload>,
    barriers: Vec<Barrier>,
    config: PhantomData<fn() -> C>,
}

impl<C: TileConfig> Cta<C> {
    pub fn new(memory: Arc<Memory>, mutant: Option<Mutant>) -> Self {
        let barriers_off = C::SMEM.full().0.0;
        let num_barriers = (C::SMEM.total_bytes - barriers_off) / Mbarrier::BYTES;
        Self {
            memory,
            mutant,
            timing: Timing::Early,
            watchdog: None,
            d: GlobalAddr(0),
            open: Open::None,
            words_are_fresh: false,
            panels: (0..barriers_off / PANEL_BYTES).map(|_| Payload::new(0)).collect(),
            barriers: (0..num_barriers).map(|_| Barrier::new()).collect(),
            config: PhantomData,
        }
    }

    /// The CTA with its barriers initialised, ready for its roles.
    pub fn start(self) -> Arc<Self> {
        self.start_by(init_barriers::<_, C>)
    }

    /// The same, of a kernel that initialises its barriers by `init`.
    pub fn start_by(self, init: impl Fn(&Agent<C>)) -> Arc<Self> {
        let cta = Arc::new(self);
        init(&cta.agent(Role::Producer));
        cta
    }

    /// The agent of `role`, to be made before the thread that runs it.
    pub fn agent(self: &Arc<Self>, role: Role) -> Agent<C> {
        self.memory.waiting.add_agent();
        Agent::new(self, role, true)
    }

    /// The panels of shared memory from `addr` on, `bytes` long.
    #[track_caller]
    pub fn panels(&self, addr: SmemAddr, bytes: u32) -> &[Payload] {
        let first = (addr.0 / PANEL_BYTES) as usize;
        &self.panels[first..first + bytes.div_ceil(PANEL_BYTES) as usize]
    }

    #[track_caller]
    fn barrier(&self, bar: Mbarrier) -> &Barrier {
        &self.barriers[((bar.0.0 - C::SMEM.full().0.0) / Mbarrier::BYTES) as usize]
    }

    /// Whether every wait for `bar` ends at once.
    fn is_open(&self, bar: Mbarrier) -> bool {
        match self.open {
            Open::None => false,
            Open::Operands => matches!(C::SMEM.name_of(bar).0, "full" | "empty"),
            Open::All => true,
        }
    }

    /// Asserts that the fault record names one of `waits` (role and kind).
    pub fn assert_fault_is_one_of(&self, waits: &[Wait]) {
        let watchdog = self.watchdog.expect("faults are recorded where there is a watchdog");
        assert_eq!(self.memory.value(watchdog.record.plus(4)), 1, "no fault record is complete");
        let record = self.memory.payload(watchdog.record).read();
        assert!(waits.iter().any(|wait| record_of(*wait) == record), "the record names none of {waits:?}");
    }
}

/// One role of a CTA, in one loom thread.
pub struct Agent<C> {
    pub cta: Arc<Cta<C>>,
    pub role: Role,
    pub(super) engine: RefCell<Engine>,
    /// Accumulators begun so far.
    pub(super) tiles: Cell<u32>,
    /// Multiplications that still read their stages.
    pub(super) reading: RefCell<Reading>,
    /// Sums that a mutant has not written yet.
    pub(super) late_sums: Cell<Option<(GlobalAddr, u32)>>,
    /// The word that was looked at last.
    pub(super) last_word: Cell<GlobalAddr>,
    /// What the latest look was at, and how often that had been written then.
    look: Cell<(Key, u64)>,
    /// Whether it found an old value.
    stale: Cell<bool>,
    /// Whether it is its thread's agent: the one that counts in deadlocks.
    counts: bool,
}

impl<C> Drop for Agent<C> {
    fn drop(&mut self) {
        if self.counts {
            self.cta.memory.waiting.remove_agent();
        }
    }
}

impl<C: TileConfig> Agent<C> {
    fn new(cta: &Arc<Cta<C>>, role: Role, counts: bool) -> Self {
        Self {
            cta: cta.clone(),
            role,
            engine: RefCell::default(),
            tiles: Cell::new(0),
            reading: RefCell::default(),
            late_sums: Cell::new(None),
            last_word: Cell::new(GlobalAddr(0)),
            look: Cell::new((0, 0)),
            stale: Cell::new(false),
            counts,
        }
    }

    /// The agent of another role that this one's thread runs as well.
    pub fn also(&self, role: Role) -> Self {
        Self::new(&self.cta, role, false)
    }

    pub fn is(&self, mutant: Mutant) -> bool {
        self.cta.mutant == Some(mutant)
    }

    pub fn order(&self, relaxed: Mutant, order: Ordering) -> Ordering {
        if self.is(relaxed) { Ordering::Relaxed } else { order }
    }

    pub fn looked_at(&self, key: Key) {
        self.look.set((key, self.cta.memory.waiting.writes(key)));
        self.stale.set(false);
    }

    /// The latest look found an old value, or not.
    pub fn found_stale(&self, stale: bool) {
        self.stale.set(stale);
    }

    pub fn last_look(&self) -> (Key, u64) {
        self.look.get()
    }

    /// Whether the latest look found an old value. A look after a yield finds a later one.
    pub fn last_look_was_stale(&self) -> bool {
        self.stale.get()
    }

    /// Completes `bytes` of a copy on `bar`.
    pub fn complete_bytes(&self, bar: Mbarrier, bytes: u32) {
        let barrier = self.cta.barrier(bar);
        if !self.cta.is_open(bar) {
            barrier.complete(bytes, self.order(Mutant::RelaxedCopy, Ordering::Release));
            self.cta.memory.waiting.note_write(barrier.key());
        }
    }

    fn arrive_with(&self, bar: Mbarrier, arrivals: u32, bytes: u32) {
        let (name, barrier) = (C::SMEM.name_of(bar).0, self.cta.barrier(bar));
        if !self.cta.is_open(bar) && !self.is(Mutant::NoArrive(name)) {
            barrier.arrive(arrivals, bytes, self.order(Mutant::RelaxedArrive(name), Ordering::Release));
            self.cta.memory.waiting.note_write(barrier.key());
        }
    }

    fn load(&self, addr: GlobalAddr) -> u32 {
        let word = self.cta.memory.word(addr);
        let (value, stale) =
            word.look(self.order(Mutant::RelaxedLoad(word.name), Ordering::Acquire), self.cta.words_are_fresh);
        self.looked_at(word.key());
        self.stale.set(stale);
        self.last_word.set(addr);
        self.engine.borrow_mut().note_acquire(word.name);
        match self.cta.mutant {
            Some(Mutant::Ahead(name, by)) if name == word.name => value.wrapping_add(by),
            _ => value,
        }
    }

    fn store(&self, addr: GlobalAddr, value: u32) {
        self.engine.borrow().check_release();
        let word = self.cta.memory.word(addr);
        if self.is(Mutant::NoStore(word.name, value)) {
            return;
        }
        let order = self.order(Mutant::RelaxedStore(word.name), Ordering::Release);
        word.store(value, order, self.cta.words_are_fresh);
        self.cta.memory.waiting.note_write(word.key());
    }
}

impl<C: TileConfig> Mbarriers for Agent<C> {
    fn mbarrier_init(&self, bar: Mbarrier, arrivals: u32) {
        self.cta.barrier(bar).init(arrivals);
    }

    fn try_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool {
        let name = C::SMEM.name_of(bar).0;
        if self.cta.is_open(bar) || self.is(Mutant::NoWait(self.role, name)) {
            return true;
        }
        let order = self.order(Mutant::RelaxedWait(name), Ordering::Acquire);
        let barrier = self.cta.barrier(bar);
        let completed = barrier.completed(order);
        self.looked_at(barrier.key());
        // The phase that runs has the other parity than the one awaited.
        completed & 1 != parity.0 as u64
    }

    fn arrive(&self, bar: Mbarrier) {
        let arrivals = if matches!(self.role, Role::Consumer(_)) { WARPS_PER_WARPGROUP } else { 1 };
        self.arrive_with(bar, arrivals, 0);
    }

    fn arrive_many(&self, bar: Mbarrier, count: u32) {
        self.arrive_with(bar, count, 0);
    }

    fn arrive_expect_tx(&self, bar: Mbarrier, bytes: u32) {
        self.arrive_with(bar, 1, bytes);
    }
}

impl<C: TileConfig> Signals for Agent<C> {
    fn load_acquire_sys(&self, addr: GlobalAddr) -> u32 {
        self.load(addr)
    }

    fn load_acquire_gpu(&self, addr: GlobalAddr) -> u32 {
        self.load(addr)
    }
}

impl<C: TileConfig> PutSignals for Agent<C> {
    fn store_release_sys(&self, addr: GlobalAddr, value: u32) {
        self.store(addr, value);
    }

    fn store_release_gpu(&self, addr: GlobalAddr, value: u32) {
        self.store(addr, value);
    }

    fn fence_sys(&self) {
        self.engine.borrow().check_release();
        if !matches!(self.cta.mutant, Some(Mutant::RelaxedStore(_))) {
            fence(Ordering::Release);
        }
    }

    fn store_fenced_sys(&self, addr: GlobalAddr, value: u32) {
        let word = self.cta.memory.word(addr);
        if !self.is(Mutant::NoStore(word.name, value)) {
            word.store(value, Ordering::Relaxed, self.cta.words_are_fresh);
            self.cta.memory.waiting.note_write(word.key());
        }
    }

    fn fetch_add_acq_rel_gpu(&self, addr: GlobalAddr, value: u32) -> u32 {
        let word = self.cta.memory.word(addr);
        if self.is(Mutant::SplitAdd) {
            let before = word.load(Ordering::Acquire);
            word.store(before + value, Ordering::Release, false);
            return before;
        }
        word.fetch_add(value, self.order(Mutant::RelaxedAdd, Ordering::AcqRel))
    }
}
