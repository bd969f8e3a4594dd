//! The plan of a CTA's shared memory: operand stages, panel buffers, barriers.

use crate::config::{PANEL_BUFS, PANEL_BYTES};
use crate::shape::{Mbarrier, SmemAddr};

/// Where everything lies in a CTA's shared memory.
///
/// Barriers and who arrives on them (a warpgroup arrives once a warp, so four times):
///
/// | barrier | one per | arrivals | completes when |
/// | --- | --- | --- | --- |
/// | `full` | stage | 1 + bytes | both operand boxes have landed |
/// | `empty` | stage | 4 · consumers | every consumer has read the stage |
/// | `panel_full` | consumer, buffer | 4 | the consumer has written a panel |
/// | `panel_empty` | consumer, buffer | 1 | the storer's copy has read the panel |
/// | `handover` | consumer | 4 | the consumer wrote its last panel for a peer; buffers pass to the loader |
/// | `partial_full` | consumer, buffer | 1 + bytes | a peer's panel has landed |
/// | `partial_empty` | consumer, buffer | 4 | the panel was added, or the reduced panel was stored |
/// | `result_full` | consumer, buffer | 4 | the consumer has written a reduced panel |
/// | `turn` | consumer | 4 | the other consumer has issued its last multiplication; in kernels whose consumers take turns |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmemPlan {
    stages: u32,
    stage_bytes: u32,
    consumers: u32,
    panel_bufs: u32,
    panels_off: u32,
    barriers_off: u32,
    /// Dynamic shared memory of a CTA, in bytes.
    pub total_bytes: u32,
}

impl SmemPlan {
    pub(crate) const fn new(stages: u32, stage_bytes: u32, consumers: u32, panel_bufs: u32) -> Self {
        let panels_off = stages * stage_bytes;
        let barriers_off = panels_off + consumers * panel_bufs * PANEL_BYTES;
        let barriers = 2 * stages + consumers * (BARRIERS_PER_CONSUMER + 1);
        let total_bytes = barriers_off + barriers * Mbarrier::BYTES;
        Self { stages, stage_bytes, consumers, panel_bufs, panels_off, barriers_off, total_bytes }
    }

    /// Start of stage `stage`: A's box first, then B's.
    #[inline(always)]
    pub const fn stage(&self, stage: u32) -> SmemAddr {
        SmemAddr(stage * self.stage_bytes)
    }

    /// Panel buffer `buf` of consumer `consumer`.
    #[inline(always)]
    pub const fn panel(&self, consumer: u32, buf: u32) -> SmemAddr {
        SmemAddr(self.panels_off + (consumer * self.panel_bufs + buf) * PANEL_BYTES)
    }

    /// Panel buffers of a consumer.
    #[inline(always)]
    pub const fn panel_bufs(&self) -> u32 {
        self.panel_bufs
    }

    #[inline(always)]
    const fn barrier(&self, idx: u32) -> Mbarrier {
        Mbarrier(SmemAddr(self.barriers_off)).at(idx)
    }

    #[inline(always)]
    const fn consumer_barrier(&self, consumer: u32, idx: u32) -> Mbarrier {
        self.barrier(2 * self.stages + consumer * BARRIERS_PER_CONSUMER + idx)
    }

    /// First of the stages' full barriers.
    #[inline(always)]
    pub const fn full(&self) -> Mbarrier {
        self.barrier(0)
    }

    /// First of the stages' empty barriers.
    #[inline(always)]
    pub const fn empty(&self) -> Mbarrier {
        self.barrier(self.stages)
    }

    /// First of a consumer's panel-full barriers.
    #[inline(always)]
    pub const fn panel_full(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 0)
    }

    /// First of a consumer's panel-empty barriers.
    #[inline(always)]
    pub const fn panel_empty(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, PANEL_BUFS)
    }

    /// First of a consumer's partial-full barriers.
    #[inline(always)]
    pub const fn partial_full(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 2 * PANEL_BUFS)
    }

    /// First of a consumer's partial-empty barriers.
    #[inline(always)]
    pub const fn partial_empty(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 3 * PANEL_BUFS)
    }

    /// First of a consumer's result-full barriers.
    #[inline(always)]
    pub const fn result_full(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 4 * PANEL_BUFS)
    }

    /// A consumer's handover barrier.
    #[inline(always)]
    pub const fn handover(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 5 * PANEL_BUFS)
    }

    /// The barrier on which consumer `consumer` waits for its turn.
    #[inline(always)]
    pub const fn turn(&self, consumer: u32) -> Mbarrier {
        // After those of all consumers.
        self.consumer_barrier(self.consumers, consumer)
    }

    /// What `bar` is, for reports: its name and its index (stage, or consumer · buffers + buffer).
    pub const fn name_of(&self, bar: Mbarrier) -> (&'static str, u32) {
        let idx = bar.0.0.wrapping_sub(self.barriers_off) / Mbarrier::BYTES;
        if idx < self.stages {
            return ("full", idx);
        }
        if idx < 2 * self.stages {
            return ("empty", idx - self.stages);
        }
        let rest = idx - 2 * self.stages;
        let consumer = rest / BARRIERS_PER_CONSUMER;
        let within = rest % BARRIERS_PER_CONSUMER;
        if consumer == self.consumers && within < self.consumers {
            return ("turn", within);
        }
        if consumer >= self.consumers {
            return ("unknown", idx);
        }
        let name = match within / PANEL_BUFS {
            0 => "panel_full",
            1 => "panel_empty",
            2 => "partial_full",
            3 => "partial_empty",
            4 => "result_full",
            _ => return ("handover", consumer),
        };
        (name, consumer * PANEL_BUFS + within % PANEL_BUFS)
    }
}

/// All of a consumer's but that of its turn.
const BARRIERS_PER_CONSUMER: u32 = 5 * PANEL_BUFS + 1;
