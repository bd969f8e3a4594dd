//! How many registers each thread of a kernel has.

use crate::shape::WARPGROUP_THREADS;

/// How the registers of an SM are dealt out to a kernel's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// What a mover thread keeps (`setmaxnreg.dec`).
    pub mover: u32,
    /// What a consumer thread gets (`setmaxnreg.inc`).
    pub consumer: u32,
}

impl Registers {
    /// For 128 accumulators a thread and movers with much to do.
    pub const MAIN: Self = Self { mover: 88, consumer: 208 };
    /// For 192 accumulators a thread and movers that only copy.
    pub const WIDE: Self = Self { mover: 40, consumer: 232 };
    /// For a CTA with one consumer warpgroup, of which each thread may have almost all that instructions can name.
    pub const ONE_CONSUMER: Self = Self { mover: 88, consumer: 240 };
    /// For 128 accumulators a thread and 64 sums beside them.
    pub const PROMOTED: Self = Self { mover: 56, consumer: 224 };

    /// What each thread of a CTA with `consumers` consumer warpgroups has when it starts: as much of an SM's registers as can be
    /// had in steps of 8.
    const fn at_launch(consumers: u32) -> u32 {
        65_536 / (WARPGROUP_THREADS * (1 + consumers)) / 8 * 8
    }

    /// Whether consumers get no more than the CTA was launched with: else their `setmaxnreg.inc` waits for ever, and no
    /// watchdog sees it. Both numbers are multiples of 8.
    pub const fn fit(self, consumers: u32) -> bool {
        let sum = self.mover + consumers * self.consumer;
        sum <= (1 + consumers) * Self::at_launch(consumers)
            && self.mover.is_multiple_of(8)
            && self.consumer.is_multiple_of(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumers_get_no_more_registers_than_a_cta_was_launched_with() {
        // 168 a thread of 384, 256 of 256.
        assert!(Registers::MAIN.fit(2) && Registers::MAIN.fit(1) && Registers::WIDE.fit(2));
        assert!(Registers::ONE_CONSUMER.fit(1) && !Registers::ONE_CONSUMER.fit(2));
        let fits = |mover, consumer| Registers { mover, consumer }.fit(2);
        assert!(fits(24, 240) && fits(40, 232));
        // The register file has as many, the CTA does not.
        assert!(!fits(48, 232) && !fits(40, 240));
        assert!(!fits(44, 228), "steps of 8");
    }
}
