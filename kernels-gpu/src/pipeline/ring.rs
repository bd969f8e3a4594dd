//! A ring of buffers between one producer and its consumers.
//!
//! | call | who | what it orders |
//! | --- | --- | --- |
//! | [`Ring::producer_acquire`] | producer | waits until the consumers of the buffer's last use have released it |
//! | [`Ring::producer_expect`] / [`Ring::producer_commit`] | producer | announces the bytes of its copies / says that it has written |
//! | [`Ring::consumer_wait`] | consumer | waits until the buffer is filled |
//! | [`Ring::consumer_release`] | consumer | says that it has read the buffer |
//!
//! Tokens make misuse hard: a [`FreeSlot`] comes only from an acquire and a [`ReadySlot`] only from a wait; commit and
//! release consume them.

use super::state::PipelineState;
use super::wait::wait_mbarrier;
use crate::abi::WaitKind;
use crate::machine::{Aborted, Mbarriers, Watch};
use crate::shape::{Mbarrier, Role};

/// A ring of `STAGES` buffers: barriers `full[i]` and `empty[i]`.
#[derive(Clone, Copy)]
pub struct Ring<'m, M, const STAGES: u32> {
    /// Machine of the role that uses the ring.
    pub m: &'m M,
    /// Role that uses the ring.
    pub role: Role,
    /// First full barrier.
    pub full: Mbarrier,
    /// First empty barrier.
    pub empty: Mbarrier,
    /// How waits for a full buffer are reported.
    pub full_kind: WaitKind,
    /// How waits for an empty buffer are reported.
    pub empty_kind: WaitKind,
    /// Number of the ring's first buffer in reports.
    pub first_index: u32,
}

/// A buffer that the producer may write.
#[must_use = "an acquired buffer must be committed, or the ring stops"]
pub struct FreeSlot {
    index: u32,
}

/// A buffer that the producer's copies are filling.
pub struct FillingSlot {
    index: u32,
    full: Mbarrier,
}

/// A buffer that a consumer may read.
#[must_use = "a filled buffer must be released, or the ring stops"]
pub struct ReadySlot {
    index: u32,
}

impl FreeSlot {
    /// Index of the buffer.
    #[inline(always)]
    pub const fn index(&self) -> u32 {
        self.index
    }
}

impl FillingSlot {
    /// Index of the buffer.
    #[inline(always)]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Barrier on which copies into the buffer complete their bytes.
    #[inline(always)]
    pub const fn full(&self) -> Mbarrier {
        self.full
    }
}

impl ReadySlot {
    /// Index of the buffer.
    #[inline(always)]
    pub const fn index(&self) -> u32 {
        self.index
    }
}

impl<M: Mbarriers + Watch, const STAGES: u32> Ring<'_, M, STAGES> {
    /// Waits for the buffer of `state` to be free.
    #[inline(always)]
    pub fn producer_acquire(&self, state: PipelineState<STAGES>) -> Result<FreeSlot, Aborted> {
        let index = state.index();
        let shown = self.first_index + index;
        wait_mbarrier(self.m, self.role, self.empty_kind, shown, self.empty.at(index), state.empty_parity())?;
        Ok(FreeSlot { index })
    }

    /// Announces that copies will bring `bytes` into the buffer; they complete on the returned slot's barrier.
    #[inline(always)]
    pub fn producer_expect(&self, slot: FreeSlot, bytes: u32) -> FillingSlot {
        let full = self.full.at(slot.index);
        self.m.arrive_expect_tx(full, bytes);
        FillingSlot { index: slot.index, full }
    }

    /// Says that the role has written the buffer itself.
    #[inline(always)]
    pub fn producer_commit(&self, slot: FreeSlot) {
        self.m.arrive(self.full.at(slot.index));
    }

    /// Waits for the buffer of `state` to be filled.
    #[inline(always)]
    pub fn consumer_wait(&self, state: PipelineState<STAGES>) -> Result<ReadySlot, Aborted> {
        let index = state.index();
        let shown = self.first_index + index;
        wait_mbarrier(self.m, self.role, self.full_kind, shown, self.full.at(index), state.full_parity())?;
        Ok(ReadySlot { index })
    }

    /// Whether the buffer of `state` is filled already. If so, [`Self::consumer_take_over`] gives it.
    #[inline(always)]
    pub fn consumer_test(&self, state: PipelineState<STAGES>) -> bool {
        self.m.test_wait_parity(self.full.at(state.index()), state.full_parity())
    }

    /// The buffer of `state`, which was seen to be filled, or which another role waited for and handed over through a barrier
    /// of its own.
    #[inline(always)]
    pub fn consumer_take_over(&self, state: PipelineState<STAGES>) -> ReadySlot {
        ReadySlot { index: state.index() }
    }

    /// Says that the role has read the buffer.
    #[inline(always)]
    pub fn consumer_release(&self, slot: ReadySlot) {
        self.m.arrive(self.empty.at(slot.index));
    }

    /// Says so for `arrivals` arrivals at once: a thread that read the buffer in place of a warpgroup.
    #[inline(always)]
    pub fn consumer_release_many(&self, slot: ReadySlot, arrivals: u32) {
        self.m.arrive_many(self.empty.at(slot.index), arrivals);
    }

    /// Waits until the last `uses` uses before `state` have been released, at most one a buffer: nothing is in flight
    /// any more.
    #[inline(always)]
    pub fn producer_tail(&self, state: PipelineState<STAGES>, uses: u32) -> Result<(), Aborted> {
        let mut ahead = 0;
        while ahead < STAGES {
            // The release of use u is awaited, like an acquire, by use u + STAGES.
            if STAGES - ahead <= uses {
                let _free = self.producer_acquire(state.advanced_by(ahead))?;
            }
            ahead += 1;
        }
        Ok(())
    }
}
