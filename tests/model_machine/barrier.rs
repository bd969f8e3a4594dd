//! mbarriers: pending arrivals, transaction bytes and phase in one atomic word.

use super::waiting::Key;
use loom::sync::atomic::AtomicU64;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// An mbarrier. Its word holds all arrivals so far, from bit 32 up, and the bytes announced but not yet there below.
pub struct Barrier {
    word: AtomicU64,
    /// Arrivals of one phase; set before any role starts.
    expected: OnceLock<u32>,
}

const ONE_ARRIVAL: u64 = 1 << 32;

impl Barrier {
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0), expected: OnceLock::new() }
    }

    pub fn init(&self, arrivals: u32) {
        self.expected.set(arrivals).expect("a barrier is initialised once");
    }

    fn expected(&self) -> u64 {
        *self.expected.get().expect("a barrier is initialised before use") as u64
    }

    /// Phases completed by arrivals and bytes as `word` counts them.
    fn phases(&self, word: u64) -> u64 {
        let (arrivals, bytes) = (word >> 32, word as u32);
        let by_arrivals = arrivals / self.expected();
        // All arrivals of the latest phase are there, its bytes are not.
        if bytes != 0 && arrivals.is_multiple_of(self.expected()) { by_arrivals - 1 } else { by_arrivals }
    }

    /// Phases completed so far. Reads the latest value: the word lies in the SM that asks.
    #[track_caller]
    pub fn completed(&self, order: Ordering) -> u64 {
        self.phases(self.word.fetch_add(0, order))
    }

    pub fn key(&self) -> Key {
        self as *const Self as Key
    }

    /// `arrivals` arrivals that announce `bytes`.
    #[track_caller]
    pub fn arrive(&self, arrivals: u32, bytes: u32, order: Ordering) {
        let before = self.word.fetch_add(arrivals as u64 * ONE_ARRIVAL + bytes as u64, order);
        let (arrived, outstanding) = (before >> 32, before as u32);
        let in_phase = arrived % self.expected();
        let full = outstanding != 0 && in_phase == 0;
        assert!(!full && in_phase + arrivals as u64 <= self.expected(), "an arrival past the barrier's count");
    }

    /// A copy's `bytes` have landed.
    #[track_caller]
    pub fn complete(&self, bytes: u32, order: Ordering) {
        let before = self.word.fetch_sub(bytes as u64, order);
        assert!(before as u32 >= bytes, "a copy brought more bytes than were announced");
    }
}
