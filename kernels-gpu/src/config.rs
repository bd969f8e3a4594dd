//! Tile configurations and the shared memory they need, checked when the crate is compiled.
#![forbid(unsafe_code)]

use crate::shape::{Mbarrier, Role, SmemAddr, WARPGROUP_THREADS};

/// Bytes of one swizzled row of shared memory: the span of the 128-byte swizzle, and the width of every box.
pub const ROW_BYTES: u32 = 128;
/// Rows of a panel: the rows one warpgroup multiplies.
pub const PANEL_ROWS: u32 = 64;
/// Bytes of one panel, the unit that passes between consumers and the movers.
pub const PANEL_BYTES: u32 = PANEL_ROWS * ROW_BYTES;
/// Panel buffers each consumer has.
pub const PANEL_BUFS: u32 = 2;
/// Shared memory one CTA may have on sm_90 (227 KiB).
pub const MAX_SMEM_BYTES: u32 = 232_448;
/// Alignment of shared-memory tiles: one period of the 128-byte swizzle.
pub const SMEM_ALIGN: u32 = 1024;

/// Element types of operands and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl Element {
    /// Bytes of one element.
    pub const fn bytes(self) -> u32 {
        match self {
            Element::Bf16 | Element::F16 => 2,
            Element::F32 => 4,
        }
    }
}

/// A box of a tensor map: `rows` rows of [`ROW_BYTES`] bytes. Both the copy and its `expect_tx` come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileBox {
    /// Rows of the box.
    pub rows: u32,
}

impl TileBox {
    /// Bytes the box brings.
    pub const fn bytes(self) -> u32 {
        self.rows * ROW_BYTES
    }
}

/// The constants of one compiled kernel. `D = A · Bᵀ`; A is M×K, B is N×K, both row-major.
pub trait TileConfig: 'static {
    /// Rows of a tile of D.
    const TILE_M: u32;
    /// Columns of a tile of D.
    const TILE_N: u32;
    /// Stages of the operand ring.
    const STAGES: u32;
    /// Type of A and B.
    const IN: Element = Element::Bf16;
    /// Type of D and of partials on the wire.
    const OUT: Element = Element::Bf16;

    /// Elements along K of one stage.
    const TILE_K: u32 = ROW_BYTES / Self::IN.bytes();
    /// Consumer warpgroups: 64 rows each.
    const CONSUMERS: u32 = Self::TILE_M / PANEL_ROWS;
    /// Columns of a panel.
    const PANEL_COLS: u32 = ROW_BYTES / Self::OUT.bytes();
    /// Panels of one consumer's half of a tile.
    const PANELS: u32 = Self::TILE_N / Self::PANEL_COLS;
    /// Box of A: one stage's rows.
    const A_BOX: TileBox = TileBox { rows: Self::TILE_M };
    /// Box of B: one stage's rows.
    const B_BOX: TileBox = TileBox { rows: Self::TILE_N };
    /// Box of D: one panel.
    const D_BOX: TileBox = TileBox { rows: PANEL_ROWS };
    /// Bytes one stage's copies bring, and so the bytes its full barrier expects.
    const STAGE_BYTES: u32 = Self::A_BOX.bytes() + Self::B_BOX.bytes();
    /// Threads of a CTA: the movers' warpgroup and the consumers.
    const THREADS: u32 = WARPGROUP_THREADS * (1 + Self::CONSUMERS);
    /// Bytes one tile takes in a slot.
    const SLOT_TILE_BYTES: u32 = Self::CONSUMERS * Self::PANELS * PANEL_BYTES;
    /// The shared-memory plan.
    const SMEM: SmemPlan = SmemPlan::new(Self::STAGES, Self::STAGE_BYTES, Self::CONSUMERS);
    /// Compile-time checks; naming this constant runs them.
    const CHECKED: () = {
        assert!(
            Self::TILE_M.is_multiple_of(PANEL_ROWS) && Self::CONSUMERS >= 1,
            "TILE_M is whole warpgroups of 64 rows"
        );
        assert!(Self::TILE_N.is_multiple_of(Self::PANEL_COLS), "TILE_N is whole panels");
        assert!(Self::TILE_M <= 256 && Self::TILE_N <= 256, "a TMA box has at most 256 rows");
        assert!(Self::STAGES >= 2, "a ring of one stage cannot overlap");
        assert!(Self::SMEM.total_bytes <= MAX_SMEM_BYTES, "shared memory exceeds 227 KiB");
        assert!(Self::A_BOX.bytes().is_multiple_of(SMEM_ALIGN), "stages keep the swizzle's alignment");
        assert!(Self::PANELS * PANEL_BYTES <= Self::STAGE_BYTES, "a stage carries one consumer's panels");
        assert!(registers_fit(Self::CONSUMERS), "setmaxnreg totals exceed the register file");
    };
}

/// A configuration as a type: tile rows, tile columns, stages.
pub struct Tile<const M: u32, const N: u32, const STAGES: u32>;

impl<const M: u32, const N: u32, const S: u32> TileConfig for Tile<M, N, S> {
    const TILE_M: u32 = M;
    const TILE_N: u32 = N;
    const STAGES: u32 = S;
}

/// 128×256×64, four stages: the main configuration.
pub type Tile128x256 = Tile<128, 256, 4>;
/// 128×128×64, six stages: for problems with few tiles.
pub type Tile128x128 = Tile<128, 128, 6>;

/// Registers a mover thread keeps (`setmaxnreg.dec`).
pub const MOVER_REGISTERS: u32 = 72;
/// Registers a consumer thread gets (`setmaxnreg.inc`).
pub const CONSUMER_REGISTERS: u32 = 216;

const fn registers_fit(consumers: u32) -> bool {
    WARPGROUP_THREADS * (MOVER_REGISTERS + consumers * CONSUMER_REGISTERS) <= 65_536
}

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
/// | `result_full` | consumer, 2 | 4 | the consumer has written a reduced panel |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmemPlan {
    stages: u32,
    stage_bytes: u32,
    consumers: u32,
    panels_off: u32,
    barriers_off: u32,
    /// Dynamic shared memory of a CTA, in bytes.
    pub total_bytes: u32,
}

impl SmemPlan {
    const fn new(stages: u32, stage_bytes: u32, consumers: u32) -> Self {
        let panels_off = stages * stage_bytes;
        let barriers_off = panels_off + consumers * PANEL_BUFS * PANEL_BYTES;
        let barriers = 2 * stages + consumers * BARRIERS_PER_CONSUMER;
        let total_bytes = barriers_off + barriers * Mbarrier::BYTES;
        Self { stages, stage_bytes, consumers, panels_off, barriers_off, total_bytes }
    }

    /// Start of stage `stage`: A's box first, then B's.
    #[inline(always)]
    pub const fn stage(&self, stage: u32) -> SmemAddr {
        SmemAddr(stage * self.stage_bytes)
    }

    /// Panel buffer `buf` of consumer `consumer`.
    #[inline(always)]
    pub const fn panel(&self, consumer: u32, buf: u32) -> SmemAddr {
        SmemAddr(self.panels_off + (consumer * PANEL_BUFS + buf) * PANEL_BYTES)
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
        self.consumer_barrier(consumer, 2)
    }

    /// First of a consumer's partial-full barriers.
    #[inline(always)]
    pub const fn partial_full(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 4)
    }

    /// First of a consumer's partial-empty barriers.
    #[inline(always)]
    pub const fn partial_empty(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 6)
    }

    /// First of a consumer's result-full barriers.
    #[inline(always)]
    pub const fn result_full(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 8)
    }

    /// A consumer's handover barrier.
    #[inline(always)]
    pub const fn handover(&self, consumer: u32) -> Mbarrier {
        self.consumer_barrier(consumer, 10)
    }

    /// What `bar` is, for reports: its name and its index (stage, or consumer · 2 + buffer).
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
        if consumer >= self.consumers {
            return ("unknown", idx);
        }
        let within = rest % BARRIERS_PER_CONSUMER;
        let name = match within / 2 {
            0 => "panel_full",
            1 => "panel_empty",
            2 => "partial_full",
            3 => "partial_empty",
            4 => "result_full",
            _ => return ("handover", consumer),
        };
        (name, consumer * 2 + within % 2)
    }
}

const BARRIERS_PER_CONSUMER: u32 = 11;

/// The roles of a CTA with `consumers` consumer warpgroups (at most two), movers first.
pub const fn roles(consumers: u32) -> &'static [Role] {
    const ALL: [Role; 5] = [Role::Producer, Role::Storer, Role::Loader, Role::Consumer(0), Role::Consumer(1)];
    if consumers == 1 { ALL.split_at(4).0 } else { &ALL }
}

const _: () = Tile128x256::CHECKED;
const _: () = Tile128x128::CHECKED;
