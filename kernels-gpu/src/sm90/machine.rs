//! The machine traits on Hopper: [`Thread`] for the mover roles, [`Warpgroup`] for the consumers.

use super::row_ends::store_row_ends;
use super::warp::Warp;
use super::{bulk, matrix, mbarrier, memory, sync, thread};
use crate::abi::{FaultRecord, Operand, TensorMap, Wait, Watchdog};
use crate::machine::{
    Aborted, BulkCopy, Mbarriers, NeighbourKernels, PutSignals, RowEnds, Settle, Signals, Stopwatch, Watch,
};
use crate::shape::{GlobalAddr, Mbarrier, Parity, SmemAddr, WARPS_PER_WARPGROUP};
use core::mem::offset_of;

/// What both kinds of role share: the CTA's memory, its tensor maps, its watchdog.
#[derive(Clone, Copy)]
pub struct Cta {
    smem: u32,
    maps: *const TensorMap,
    watchdog: &'static Watchdog,
}

/// A mover role: one thread.
pub struct Thread(Cta);

/// A consumer role: the 128 threads of a warpgroup, each with its own number in `thread`.
pub struct Warpgroup {
    pub(super) cta: Cta,
    pub(super) thread: u32,
}

impl Cta {
    /// # Safety
    /// Only on a CTA launched with the shared memory of the kernel's plan, whose roles use only that plan's offsets and
    /// call only what their role may; `maps` lie in parameter space.
    #[inline(always)]
    pub unsafe fn new(maps: *const TensorMap, watchdog: &'static Watchdog) -> Self {
        Self { smem: thread::dynamic_shared_base(), maps, watchdog }
    }

    /// The machine of one thread.
    #[inline(always)]
    pub fn thread(self) -> Thread {
        Thread(self)
    }

    /// The machine of lane `lane` of a warp.
    #[inline(always)]
    pub fn warp(self, lane: u32) -> Warp {
        Warp::new(self, lane)
    }

    /// The machine of thread `thread` of a warpgroup.
    #[inline(always)]
    pub fn warpgroup(self, thread: u32) -> Warpgroup {
        Warpgroup { cta: self, thread }
    }

    /// `addr` in the shared window.
    #[inline(always)]
    pub fn at(&self, addr: SmemAddr) -> u32 {
        self.smem + addr.0
    }

    #[inline(always)]
    pub(super) fn bar(&self, bar: Mbarrier) -> u32 {
        self.at(bar.0)
    }

    #[inline(always)]
    pub(super) fn map(&self, operand: Operand) -> *const TensorMap {
        self.maps.wrapping_add(operand as usize)
    }
}

/// How one wait has gone so far.
pub struct Patience {
    looks: u32,
    /// Tick of the first check, or of the check that found the abort word raised; 0 is "not yet".
    since: u32,
    aborted: bool,
}

impl Patience {
    pub(super) const NEW: Self = Self { looks: 0, since: 0, aborted: false };
}

/// Failed looks between two looks at the clock and the abort word.
const LOOKS_PER_CHECK: u32 = 64;

/// Waits are timed in ticks of 2¹⁶ ns: half the registers of nanoseconds, and 78 hours before they wrap.
const TICK_SHIFT: u32 = 16;

/// Ticks (2 ms) between seeing the abort word and leaving: agents that have not seen it yet may still arrive, and
/// copies in flight land, so that all warps of a warpgroup give up the same wait.
const ABORT_GRACE_TICKS: u32 = 31;

/// One failed look. `uniform` makes the answer the same for the whole warp; `reports` is true in one lane of it.
#[inline(always)]
pub(super) fn pause(
    cta: &Cta,
    patience: &mut Patience,
    wait: impl Fn() -> Wait,
    reports: bool,
    uniform: impl Fn(bool) -> bool,
) -> Result<(), Aborted> {
    patience.looks += 1;
    if patience.looks % LOOKS_PER_CHECK != 0 {
        return Ok(());
    }
    let now = (thread::globaltimer() >> TICK_SHIFT) as u32;
    if patience.since == 0 {
        patience.since = now;
    }
    let elapsed = now.wrapping_sub(patience.since);
    let watchdog = cta.watchdog;
    // SAFETY: the abort word is mapped for as long as the kernel runs.
    let raised = unsafe { memory::load_relaxed_sys(watchdog.abort.0) } != 0;
    if raised && !patience.aborted {
        patience.since = now;
        patience.aborted = true;
    } else if !raised && reports && watchdog.deadline_ns != 0 {
        let wait = wait();
        if elapsed as u64 > watchdog.limit_ns(wait.kind) >> TICK_SHIFT {
            report(cta, wait, elapsed);
        }
    }
    let over = patience.aborted && now.wrapping_sub(patience.since) > ABORT_GRACE_TICKS;
    if uniform(over) { Err(Aborted) } else { Ok(()) }
}

/// Writes the fault record if this rank has none yet, and raises every rank's abort word.
#[inline(always)]
fn report(cta: &Cta, wait: Wait, elapsed: u32) {
    let watchdog = cta.watchdog;
    let record = |offset: usize, value: u32| {
        // SAFETY: the record is mapped for as long as the kernel runs.
        unsafe { memory::store_relaxed_sys(watchdog.record.0 + offset as u64, value) }
    };
    // SAFETY: the claim word is mapped for as long as the kernel runs.
    if unsafe { memory::exchange_relaxed_gpu(watchdog.claim.0, 1) } == 0 {
        record(offset_of!(FaultRecord, rank), watchdog.rank);
        record(offset_of!(FaultRecord, cta), thread::block_idx_x());
        record(offset_of!(FaultRecord, role), wait.role.code());
        record(offset_of!(FaultRecord, kind), wait.kind as u32);
        record(offset_of!(FaultRecord, index), wait.index);
        record(offset_of!(FaultRecord, awaited), wait.awaited);
        record(offset_of!(FaultRecord, seen), wait.seen);
        record(offset_of!(FaultRecord, elapsed_ns), elapsed << TICK_SHIFT);
        record(offset_of!(FaultRecord, elapsed_ns) + 4, elapsed >> (32 - TICK_SHIFT));
        // SAFETY: as above; the release orders the record before its state.
        unsafe { memory::store_release_sys(watchdog.record.0 + offset_of!(FaultRecord, state) as u64, 1) }
    }
    let mut rank = 0;
    while rank < watchdog.world {
        if let Some(abort) = watchdog.peer_aborts.get(rank as usize) {
            // SAFETY: every rank's abort word is mapped for as long as the call runs.
            unsafe { memory::store_relaxed_sys(abort.0, 1) }
        }
        rank += 1;
    }
}

impl Settle for Thread {
    #[inline(always)]
    fn settle(&self, value: u32) -> u32 {
        thread::settled(value)
    }
}

impl Settle for Warpgroup {
    #[inline(always)]
    fn settle(&self, value: u32) -> u32 {
        thread::settled(value)
    }
}

impl NeighbourKernels for Thread {
    #[inline(always)]
    fn wait_for_previous(&self) {
        // SAFETY: waits for a kernel that waits for nothing of this one.
        unsafe { sync::wait_for_previous() }
    }

    #[inline(always)]
    fn let_next_start(&self) {
        // SAFETY: a hint.
        unsafe { sync::let_next_start() }
    }
}

impl Watch for Thread {
    type Patience = Patience;

    #[inline(always)]
    fn patience(&self) -> Patience {
        Patience::NEW
    }

    #[inline(always)]
    fn pause(&self, patience: &mut Patience, wait: impl Fn() -> Wait) -> Result<(), Aborted> {
        pause(&self.0, patience, wait, true, |over| over)
    }

    #[inline(always)]
    fn linger(&self, ns: u32) {
        // SAFETY: sleeps.
        unsafe { sync::nanosleep(ns) }
    }
}

impl Watch for Warpgroup {
    type Patience = Patience;

    #[inline(always)]
    fn patience(&self) -> Patience {
        Patience::NEW
    }

    #[inline(always)]
    fn pause(&self, patience: &mut Patience, wait: impl Fn() -> Wait) -> Result<(), Aborted> {
        // SAFETY: every lane of the warp is here: what ends a wait is the same for all of them.
        pause(&self.cta, patience, wait, self.thread % 32 == 0, |over| unsafe { sync::vote_any(over) })
    }
}

impl Stopwatch for Thread {
    #[inline(always)]
    fn ticks(&self) -> u32 {
        thread::clock()
    }

    #[inline(always)]
    fn nanoseconds(&self) -> u32 {
        thread::globaltimer() as u32
    }
}

impl Mbarriers for Thread {
    #[inline(always)]
    fn mbarrier_init(&self, bar: Mbarrier, arrivals: u32) {
        // SAFETY: by `Cta::new`'s contract.
        unsafe { mbarrier::init(self.0.bar(bar), arrivals) }
    }

    #[inline(always)]
    fn try_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool {
        // SAFETY: by `Cta::new`'s contract.
        unsafe { mbarrier::try_wait_parity(self.0.bar(bar), parity.0) }
    }

    #[inline(always)]
    fn arrive(&self, bar: Mbarrier) {
        // SAFETY: by `Cta::new`'s contract.
        unsafe { mbarrier::arrive(self.0.bar(bar)) }
    }

    #[inline(always)]
    fn arrive_many(&self, bar: Mbarrier, count: u32) {
        // SAFETY: by `Cta::new`'s contract.
        unsafe { mbarrier::arrive_many(self.0.bar(bar), count) }
    }

    #[inline(always)]
    fn arrive_expect_tx(&self, bar: Mbarrier, bytes: u32) {
        // SAFETY: by `Cta::new`'s contract.
        unsafe { mbarrier::arrive_expect_tx(self.0.bar(bar), bytes) }
    }
}

impl Mbarriers for Warpgroup {
    #[inline(always)]
    fn mbarrier_init(&self, bar: Mbarrier, arrivals: u32) {
        if self.thread == 0 {
            // SAFETY: by `Cta::new`'s contract.
            unsafe { mbarrier::init(self.cta.bar(bar), arrivals) }
        }
    }

    #[inline(always)]
    fn try_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool {
        // SAFETY: by `Cta::new`'s contract; the vote keeps the warp together.
        unsafe { sync::vote_all(mbarrier::try_wait_parity(self.cta.bar(bar), parity.0)) }
    }

    #[inline(always)]
    fn test_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool {
        // SAFETY: as in `try_wait_parity`.
        unsafe { sync::vote_all(mbarrier::test_wait_parity(self.cta.bar(bar), parity.0)) }
    }

    #[inline(always)]
    fn arrive(&self, bar: Mbarrier) {
        // SAFETY: by `Cta::new`'s contract; the warp's accesses are ordered before its one arrival.
        unsafe {
            sync::sync_warp();
            mbarrier::arrive_as_warp(self.cta.bar(bar));
        }
    }

    #[inline(always)]
    fn arrive_many(&self, bar: Mbarrier, count: u32) {
        // SAFETY: as in `arrive`; the count is the role's, so each warp has its share.
        unsafe {
            sync::sync_warp();
            let count = count / WARPS_PER_WARPGROUP;
            mbarrier::arrive_many_as_warp(self.cta.bar(bar), count);
        }
    }

    #[inline(always)]
    fn arrive_expect_tx(&self, bar: Mbarrier, bytes: u32) {
        if self.thread == 0 {
            // SAFETY: by `Cta::new`'s contract.
            unsafe { mbarrier::arrive_expect_tx(self.cta.bar(bar), bytes) }
        }
    }
}

impl Signals for Thread {
    #[inline(always)]
    fn load_acquire_sys(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: kernels pass addresses of the workspace, which is mapped for as long as the call runs.
        unsafe { memory::load_acquire_sys(addr.0) }
    }

    #[inline(always)]
    fn load_acquire_gpu(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as above.
        unsafe { memory::load_acquire_gpu(addr.0) }
    }

    #[inline(always)]
    fn load_settled_gpu(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as above.
        unsafe { memory::load_relaxed_gpu(addr.0) }
    }

    #[inline(always)]
    fn load_relaxed_sys(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as above.
        unsafe { memory::load_relaxed_sys(addr.0) }
    }
}

impl Signals for Warpgroup {
    #[inline(always)]
    fn load_acquire_sys(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as above; one lane acquires, and the warp's barrier passes the order on with the value.
        unsafe { sync::broadcast(self.thread % 32 == 0, || memory::load_acquire_sys(addr.0)) }
    }

    #[inline(always)]
    fn load_acquire_gpu(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as in `load_acquire_sys`.
        unsafe { sync::broadcast(self.thread % 32 == 0, || memory::load_acquire_gpu(addr.0)) }
    }

    #[inline(always)]
    fn load_settled_gpu(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as in `load_acquire_sys`; every lane reads, and finds the same.
        unsafe { memory::load_relaxed_gpu(addr.0) }
    }
}

impl PutSignals for Thread {
    #[inline(always)]
    fn store_release_sys(&self, addr: GlobalAddr, value: u32) {
        // SAFETY: as for loads.
        unsafe { memory::store_release_sys(addr.0, value) }
    }

    #[inline(always)]
    fn store_release_gpu(&self, addr: GlobalAddr, value: u32) {
        // SAFETY: as for loads.
        unsafe { memory::store_release_gpu(addr.0, value) }
    }

    #[inline(always)]
    fn fetch_add_acq_rel_gpu(&self, addr: GlobalAddr, value: u32) -> u32 {
        // SAFETY: as for loads.
        unsafe { memory::fetch_add_acq_rel_gpu(addr.0, value) }
    }

    #[inline(always)]
    fn store_settled_gpu(&self, addr: GlobalAddr, value: u32) {
        // SAFETY: as for loads.
        unsafe { memory::store_relaxed_gpu(addr.0, value) }
    }

    #[inline(always)]
    fn fence_sys(&self) {
        // SAFETY: a fence.
        unsafe { memory::fence_sys() }
    }

    #[inline(always)]
    fn store_fenced_sys(&self, addr: GlobalAddr, value: u32) {
        // SAFETY: as for loads.
        unsafe { memory::store_relaxed_sys(addr.0, value) }
    }
}

impl BulkCopy for Thread {
    #[inline(always)]
    fn load_box(&self, dst: SmemAddr, operand: Operand, row: u32, col: u32, full: Mbarrier) {
        // SAFETY: by `Cta::new`'s contract.
        unsafe { bulk::tensor_2d_load(self.0.at(dst), self.0.map(operand), col, row, self.0.bar(full)) }
    }

    #[inline(always)]
    fn store_box(&self, operand: Operand, row: u32, col: u32, src: SmemAddr) {
        // SAFETY: by `Cta::new`'s contract.
        unsafe { bulk::tensor_2d_store(self.0.map(operand), col, row, self.0.at(src)) }
    }

    #[inline(always)]
    fn load_bytes(&self, dst: SmemAddr, src: GlobalAddr, bytes: u32, full: Mbarrier) {
        // SAFETY: by `Cta::new`'s contract; kernels pass addresses of the workspace.
        unsafe { bulk::load(self.0.at(dst), src.0, bytes, self.0.bar(full)) }
    }

    #[inline(always)]
    fn store_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        // SAFETY: by `Cta::new`'s contract; kernels pass addresses of the workspace.
        unsafe { bulk::store(dst.0, self.0.at(src), bytes) }
    }

    #[inline(always)]
    fn push_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        let mut off = 0;
        while off < bytes {
            // SAFETY: by `Cta::new`'s contract; kernels pass addresses of the workspace.
            unsafe { memory::store_v4(dst.0 + off as u64, matrix::load_v4(self.0.at(src) + off)) };
            off += 16;
        }
        // SAFETY: a fence.
        unsafe { sync::fence_proxy_async_shared() }
    }

    #[inline(always)]
    fn store_row_ends(&self, ends: &RowEnds) {
        // SAFETY: by `Cta::new`'s contract; kernels pass rows that exist.
        unsafe { store_row_ends(&self.0, ends, 0, 1) }
    }

    #[inline(always)]
    fn commit_group(&self) {
        // SAFETY: affects this thread's copies only.
        unsafe { bulk::commit_group() }
    }

    #[inline(always)]
    fn wait_group_read<const PENDING: u32>(&self) {
        // SAFETY: affects this thread's copies only.
        unsafe { bulk::wait_group_read::<PENDING>() }
    }

    #[inline(always)]
    fn wait_group_complete<const PENDING: u32>(&self) {
        // SAFETY: affects this thread's copies only.
        unsafe { bulk::wait_group::<PENDING>() }
    }

    #[inline(always)]
    fn fence_proxy_async_global(&self) {
        // SAFETY: a fence.
        unsafe { sync::fence_proxy_async_global() }
    }
}
