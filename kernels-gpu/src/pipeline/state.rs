//! Place in a ring: which buffer, and which turn of it.

use crate::shape::{Parity, div_rem};

/// The number of a ring's use, as buffer index and turn. `advanced_by(n)` is `n` times `advance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineState<const STAGES: u32> {
    index: u32,
    phase: u32,
}

impl<const STAGES: u32> Default for PipelineState<STAGES> {
    fn default() -> Self {
        Self::start()
    }
}

impl<const STAGES: u32> PipelineState<STAGES> {
    /// The first use of the first buffer.
    #[inline(always)]
    pub const fn start() -> Self {
        Self { index: 0, phase: 0 }
    }

    /// Buffer index.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Parity with which a consumer waits for this use to be filled.
    #[inline(always)]
    pub const fn full_parity(self) -> Parity {
        Parity(self.phase)
    }

    /// Parity with which a producer waits for this use's buffer to be free. Buffers start out free, so the producer waits
    /// for the phase before: on a fresh barrier that phase counts as completed.
    #[inline(always)]
    pub const fn empty_parity(self) -> Parity {
        Parity(self.phase ^ 1)
    }

    /// Goes on to the next use.
    #[inline(always)]
    pub const fn advance(&mut self) {
        self.index += 1;
        if self.index == STAGES {
            self.index = 0;
            self.phase ^= 1;
        }
    }

    /// The state `n` uses later.
    #[inline(always)]
    pub const fn advanced_by(self, n: u32) -> Self {
        let (turns, index) = div_rem(self.index + n, STAGES);
        Self { index, phase: self.phase ^ turns & 1 }
    }
}
