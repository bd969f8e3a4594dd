//! The mbarrier of the PTX ISA: pending arrivals, transaction bytes, phase; and what its phases order.

use super::clock::{Lane, View};
use crate::kernels::shape::Parity;

/// Largest arrival count and largest transaction count of an mbarrier (PTX ISA, "Contents of the mbarrier object").
pub(super) const MAX_COUNT: u32 = (1 << 20) - 1;

/// Why an operation is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierMisuse {
    /// More arrivals than are pending in this phase.
    ArrivalOverflow,
    /// More bytes complete than this phase expects.
    TooManyBytes,
    /// The transaction count leaves its range.
    TxCountOverflow,
}

/// One mbarrier.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    /// Arrivals that complete a phase.
    pub(super) arrivals: u32,
    /// Arrivals this phase still waits for.
    pub(super) pending: u32,
    /// Bytes this phase still waits for.
    pub(super) tx: u32,
    /// Phases completed, and so the number of the running one.
    pub(super) phase: u64,
    /// Lane of the copies that complete here.
    pub(super) lane: Lane,
    /// What arrivals have released so far.
    pub(super) released: View,
    /// What they had released when the last phase completed: what a wait acquires.
    pub(super) acquired: View,
    /// Agents blocked on the running phase, with the generation of their wait.
    pub(super) waiters: Vec<(usize, u64)>,
}

impl Barrier {
    pub(super) fn new(arrivals: u32, lane: Lane) -> Self {
        Self {
            arrivals,
            pending: arrivals,
            tx: 0,
            phase: 0,
            lane,
            released: View::default(),
            acquired: View::default(),
            waiters: Vec::new(),
        }
    }

    /// Whether the phase with this parity is the one that completed last. On a fresh barrier, the phase "before the
    /// first" has odd parity and counts as completed.
    pub(super) fn completed(&self, parity: Parity) -> bool {
        self.phase & 1 != u64::from(parity.0 & 1)
    }

    /// Announces bytes for the running phase.
    pub(super) fn expect(&mut self, bytes: u32) -> Result<(), BarrierMisuse> {
        match self.tx.checked_add(bytes) {
            Some(tx) if tx <= MAX_COUNT => self.tx = tx,
            _ => return Err(BarrierMisuse::TxCountOverflow),
        }
        Ok(())
    }

    /// Arrives; true if that completed the phase. What is released must have been joined before.
    pub(super) fn arrive(&mut self, count: u32) -> Result<bool, BarrierMisuse> {
        if count > self.pending {
            return Err(BarrierMisuse::ArrivalOverflow);
        }
        self.pending -= count;
        Ok(self.flip_if_complete())
    }

    /// Completes bytes; true if that completed the phase.
    pub(super) fn complete(&mut self, bytes: u32) -> Result<bool, BarrierMisuse> {
        if bytes > self.tx {
            return Err(BarrierMisuse::TooManyBytes);
        }
        self.tx -= bytes;
        Ok(self.flip_if_complete())
    }

    fn flip_if_complete(&mut self) -> bool {
        let complete = self.pending == 0 && self.tx == 0;
        if complete {
            self.phase += 1;
            self.pending = self.arrivals;
            self.released.generic.raise(self.lane, self.phase as u32);
            self.released.bulk.raise(self.lane, self.phase as u32);
            self.acquired = self.released.clone();
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_needs_all_arrivals_and_all_bytes() {
        let mut b = Barrier::new(2, 0);
        assert!(b.completed(Parity(1)) && !b.completed(Parity(0)));
        b.expect(100).unwrap();
        assert_eq!(b.arrive(1), Ok(false));
        assert_eq!(b.complete(60), Ok(false));
        assert_eq!(b.arrive(1), Ok(false));
        assert!(!b.completed(Parity(0)));
        assert_eq!(b.complete(40), Ok(true));
        assert!(b.completed(Parity(0)) && !b.completed(Parity(1)));
        assert_eq!((b.phase, b.pending, b.tx), (1, 2, 0));
    }

    #[test]
    fn arrivals_past_the_count_and_bytes_past_the_expectation_are_errors() {
        let mut b = Barrier::new(1, 0);
        assert_eq!(b.arrive(2), Err(BarrierMisuse::ArrivalOverflow));
        b.expect(16).unwrap();
        assert_eq!(b.arrive(1), Ok(false));
        assert_eq!(b.arrive(1), Err(BarrierMisuse::ArrivalOverflow), "the bytes hold the phase open");
        assert_eq!(b.complete(32), Err(BarrierMisuse::TooManyBytes));
        assert_eq!(b.expect(MAX_COUNT), Err(BarrierMisuse::TxCountOverflow));
    }

    #[test]
    fn parity_alternates_with_the_phases() {
        let mut b = Barrier::new(1, 0);
        for n in 0..10 {
            assert!(!b.completed(Parity::of_phase(n)));
            assert_eq!(b.arrive(1), Ok(true));
            assert!(b.completed(Parity::of_phase(n)));
        }
    }
}
