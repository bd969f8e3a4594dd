//! Barriers of a CTA: how many arrive on each, and the rings over them.

use crate::abi::WaitKind;
use crate::config::{PANEL_BUFS, TileConfig};
use crate::machine::Mbarriers;
use crate::pipeline::ring::Ring;
use crate::shape::{Role, WARPS_PER_WARPGROUP};

/// Ring of operand stages: the producer fills, every consumer reads.
pub type OperandRing<'m, M, const STAGES: u32> = Ring<'m, M, STAGES>;
/// Ring of one consumer's panel buffers.
pub type PanelRing<'m, M, const BUFS: u32> = Ring<'m, M, BUFS>;

/// Arrivals that free an operand stage: one a warp of every consumer.
pub const fn stage_readers<C: TileConfig>() -> u32 {
    C::CONSUMERS * WARPS_PER_WARPGROUP
}

/// Initialises every barrier of [`crate::config::SmemPlan`]. By one thread, before the roles start.
#[inline(always)]
pub fn init_barriers<M: Mbarriers, C: TileConfig>(m: &M) {
    init_barriers_for::<M, C>(m, stage_readers::<C>());
}

/// The same where so many arrivals free an operand stage.
#[inline(always)]
pub fn init_barriers_for<M: Mbarriers, C: TileConfig>(m: &M, stage_readers: u32) {
    let () = C::CHECKED;
    let mut stage = 0;
    while stage < C::STAGES {
        m.mbarrier_init(C::SMEM.full().at(stage), 1);
        m.mbarrier_init(C::SMEM.empty().at(stage), stage_readers);
        stage += 1;
    }
    let mut consumer = 0;
    while consumer < C::CONSUMERS {
        let mut buf = 0;
        while buf < C::PANEL_BUFS {
            m.mbarrier_init(C::SMEM.panel_full(consumer).at(buf), WARPS_PER_WARPGROUP);
            m.mbarrier_init(C::SMEM.panel_empty(consumer).at(buf), 1);
            m.mbarrier_init(C::SMEM.partial_full(consumer).at(buf), 1);
            m.mbarrier_init(C::SMEM.partial_empty(consumer).at(buf), WARPS_PER_WARPGROUP);
            m.mbarrier_init(C::SMEM.result_full(consumer).at(buf), WARPS_PER_WARPGROUP);
            buf += 1;
        }
        m.mbarrier_init(C::SMEM.handover(consumer), WARPS_PER_WARPGROUP);
        consumer += 1;
    }
}

/// The operand ring as `role` sees it. `STAGES` is `C::STAGES`.
#[inline(always)]
pub fn operand_ring<M, C: TileConfig, const STAGES: u32>(m: &M, role: Role) -> OperandRing<'_, M, STAGES> {
    const { assert!(STAGES == C::STAGES, "the ring has as many stages as the configuration") };
    Ring {
        m,
        role,
        full: C::SMEM.full(),
        empty: C::SMEM.empty(),
        full_kind: WaitKind::StageFull,
        empty_kind: WaitKind::StageEmpty,
        first_index: 0,
    }
}

/// The ring by which consumer `consumer` hands panels to the storer, as `role` sees it. `BUFS` is `C::PANEL_BUFS`.
#[inline(always)]
pub fn panel_ring<M, C: TileConfig, const BUFS: u32>(m: &M, role: Role, consumer: u32) -> PanelRing<'_, M, BUFS> {
    const { assert!(BUFS == C::PANEL_BUFS, "the ring has as many buffers as the configuration") };
    Ring {
        m,
        role,
        full: C::SMEM.panel_full(consumer),
        empty: C::SMEM.panel_empty(consumer),
        full_kind: WaitKind::PanelFull,
        empty_kind: WaitKind::PanelEmpty,
        first_index: consumer * PANEL_BUFS,
    }
}

/// The ring by which the loader hands peers' panels to consumer `consumer`, as `role` sees it. `BUFS` is `C::PANEL_BUFS`.
#[inline(always)]
pub fn partial_ring<M, C: TileConfig, const BUFS: u32>(m: &M, role: Role, consumer: u32) -> PanelRing<'_, M, BUFS> {
    const { assert!(BUFS == C::PANEL_BUFS, "the ring has as many buffers as the configuration") };
    Ring {
        m,
        role,
        full: C::SMEM.partial_full(consumer),
        empty: C::SMEM.partial_empty(consumer),
        full_kind: WaitKind::PartialFull,
        empty_kind: WaitKind::PartialEmpty,
        first_index: consumer * PANEL_BUFS,
    }
}
