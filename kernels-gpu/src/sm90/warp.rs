//! The machine traits for a mover role that is a whole warp: lane 0 does what one thread does, all lanes wait together,
//! and plain stores are spread over the lanes.

use super::machine::{Cta, Patience, pause};
use super::row_ends::store_row_ends;
use super::{bulk, matrix, mbarrier, memory, sync, thread};
use crate::abi::{Operand, Wait};
use crate::machine::{Aborted, BulkCopy, Mbarriers, NeighbourKernels, PutSignals, RowEnds, Settle, Signals, Watch};
use crate::shape::{GlobalAddr, Mbarrier, Parity, SmemAddr};

/// A mover role: a warp, each thread with its own lane number.
pub struct Warp {
    cta: Cta,
    lane: u32,
}

const LANES: u32 = 32;
/// Bytes that a warp stores at once.
const STORE_BYTES: u32 = LANES * 16;

impl Warp {
    /// Lane `lane` of a warp of `cta`.
    #[inline(always)]
    pub fn new(cta: Cta, lane: u32) -> Self {
        Self { cta, lane }
    }

    #[inline(always)]
    fn is_first(&self) -> bool {
        self.lane == 0
    }
}

impl Settle for Warp {
    #[inline(always)]
    fn settle(&self, value: u32) -> u32 {
        thread::settled(value)
    }
}

/// The producer does that.
impl NeighbourKernels for Warp {
    #[inline(always)]
    fn wait_for_previous(&self) {
        // SAFETY: waits for a kernel that waits for nothing of this one.
        unsafe { sync::wait_for_previous() }
    }
}

impl Watch for Warp {
    type Patience = Patience;

    #[inline(always)]
    fn patience(&self) -> Patience {
        Patience::NEW
    }

    #[inline(always)]
    fn pause(&self, patience: &mut Patience, wait: impl Fn() -> Wait) -> Result<(), Aborted> {
        // SAFETY: every lane of the warp is here: what ends a wait is the same for all of them.
        pause(&self.cta, patience, wait, self.is_first(), |over| unsafe { sync::vote_any(over) })
    }

    #[inline(always)]
    fn linger(&self, ns: u32) {
        // SAFETY: sleeps.
        unsafe { sync::nanosleep(ns) }
    }
}

impl Mbarriers for Warp {
    #[inline(always)]
    fn mbarrier_init(&self, bar: Mbarrier, arrivals: u32) {
        if self.is_first() {
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
    fn arrive(&self, bar: Mbarrier) {
        self.arrive_many(bar, 1);
    }

    #[inline(always)]
    fn arrive_many(&self, bar: Mbarrier, count: u32) {
        // SAFETY: by `Cta::new`'s contract; the warp's accesses are ordered before the arrival.
        unsafe {
            sync::sync_warp();
            mbarrier::arrive_many_as_warp(self.cta.bar(bar), count);
        }
    }

    #[inline(always)]
    fn arrive_expect_tx(&self, bar: Mbarrier, bytes: u32) {
        if self.is_first() {
            // SAFETY: by `Cta::new`'s contract.
            unsafe { mbarrier::arrive_expect_tx(self.cta.bar(bar), bytes) }
        }
    }
}

impl Signals for Warp {
    #[inline(always)]
    fn load_acquire_sys(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: kernels pass addresses of the workspace, which is mapped for as long as the call runs; one lane
        // acquires, and the warp's barrier passes the order on with the value.
        unsafe { sync::broadcast(self.is_first(), || memory::load_acquire_sys(addr.0)) }
    }

    #[inline(always)]
    fn load_acquire_gpu(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as above.
        unsafe { sync::broadcast(self.is_first(), || memory::load_acquire_gpu(addr.0)) }
    }

    #[inline(always)]
    fn load_settled_gpu(&self, addr: GlobalAddr) -> u32 {
        // SAFETY: as above; every lane reads, and finds the same.
        unsafe { memory::load_relaxed_gpu(addr.0) }
    }
}

impl PutSignals for Warp {
    #[inline(always)]
    fn store_release_sys(&self, addr: GlobalAddr, value: u32) {
        // SAFETY: as for loads; the warp's barrier puts every lane's stores before the release.
        unsafe {
            sync::sync_warp();
            if self.is_first() {
                memory::store_release_sys(addr.0, value);
            }
        }
    }

    #[inline(always)]
    fn store_release_gpu(&self, addr: GlobalAddr, value: u32) {
        // SAFETY: as above.
        unsafe {
            sync::sync_warp();
            if self.is_first() {
                memory::store_release_gpu(addr.0, value);
            }
        }
    }

    #[inline(always)]
    fn fetch_add_acq_rel_gpu(&self, addr: GlobalAddr, value: u32) -> u32 {
        // SAFETY: as above.
        unsafe {
            sync::sync_warp();
            sync::broadcast(self.is_first(), || memory::fetch_add_acq_rel_gpu(addr.0, value))
        }
    }

    #[inline(always)]
    fn fence_sys(&self) {
        // SAFETY: as for releases; the lane that fences is the one that stores.
        unsafe {
            sync::sync_warp();
            if self.is_first() {
                memory::fence_sys();
            }
        }
    }

    #[inline(always)]
    fn store_fenced_sys(&self, addr: GlobalAddr, value: u32) {
        if self.is_first() {
            // SAFETY: as for loads.
            unsafe { memory::store_relaxed_sys(addr.0, value) }
        }
    }
}

impl BulkCopy for Warp {
    #[inline(always)]
    fn load_box(&self, dst: SmemAddr, operand: Operand, row: u32, col: u32, full: Mbarrier) {
        if self.is_first() {
            // SAFETY: by `Cta::new`'s contract.
            unsafe { bulk::tensor_2d_load(self.cta.at(dst), self.cta.map(operand), col, row, self.cta.bar(full)) }
        }
    }

    #[inline(always)]
    fn store_box(&self, operand: Operand, row: u32, col: u32, src: SmemAddr) {
        if self.is_first() {
            // SAFETY: by `Cta::new`'s contract.
            unsafe { bulk::tensor_2d_store(self.cta.map(operand), col, row, self.cta.at(src)) }
        }
    }

    #[inline(always)]
    fn load_bytes(&self, dst: SmemAddr, src: GlobalAddr, bytes: u32, full: Mbarrier) {
        if self.is_first() {
            // SAFETY: by `Cta::new`'s contract; kernels pass addresses of the workspace.
            unsafe { bulk::load(self.cta.at(dst), src.0, bytes, self.cta.bar(full)) }
        }
    }

    #[inline(always)]
    fn store_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        if self.is_first() {
            // SAFETY: by `Cta::new`'s contract; kernels pass addresses of the workspace.
            unsafe { bulk::store(dst.0, self.cta.at(src), bytes) }
        }
    }

    #[inline(always)]
    fn push_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        let src = self.cta.at(src);
        let mut off = self.lane * 16;
        while off < bytes {
            // SAFETY: by `Cta::new`'s contract; kernels pass addresses of the workspace. Four loads before the first
            // store.
            unsafe {
                let at = |i: u32| off + i * STORE_BYTES;
                let load = |i: u32| if at(i) < bytes { matrix::load_v4(src + at(i)) } else { [0; 4] };
                let words = [load(0), load(1), load(2), load(3)];
                let store = |i: u32, words: [u32; 4]| {
                    if at(i) < bytes {
                        memory::store_v4(dst.0 + at(i) as u64, words);
                    }
                };
                store(0, words[0]);
                store(1, words[1]);
                store(2, words[2]);
                store(3, words[3]);
            }
            off += 4 * STORE_BYTES;
        }
        // SAFETY: a fence.
        unsafe { sync::fence_proxy_async_shared() }
    }

    #[inline(always)]
    fn store_row_ends(&self, ends: &RowEnds) {
        // SAFETY: by `Cta::new`'s contract; kernels pass rows that exist.
        unsafe { store_row_ends(&self.cta, ends, self.lane, LANES) }
    }

    #[inline(always)]
    fn commit_group(&self) {
        if self.is_first() {
            // SAFETY: affects this thread's copies only.
            unsafe { bulk::commit_group() }
        }
    }

    #[inline(always)]
    fn wait_group_read<const PENDING: u32>(&self) {
        // SAFETY: affects lane 0's copies only; the others wait for it.
        unsafe {
            if self.is_first() {
                bulk::wait_group_read::<PENDING>();
            }
            sync::sync_warp();
        }
    }

    #[inline(always)]
    fn wait_group_complete<const PENDING: u32>(&self) {
        // SAFETY: as above.
        unsafe {
            if self.is_first() {
                bulk::wait_group::<PENDING>();
            }
            sync::sync_warp();
        }
    }

    #[inline(always)]
    fn fence_proxy_async_global(&self) {
        // SAFETY: a fence.
        unsafe { sync::fence_proxy_async_global() }
    }
}
