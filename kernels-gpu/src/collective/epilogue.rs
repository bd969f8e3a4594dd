//! After the last k: the accumulator goes, panel by panel, from the consumers to the storer.
//!
//! The first panels of a tile go through the consumer's panel buffers. The others go into operand stages that the producer
//! lends: the whole tile leaves the consumers at once, however slowly the storer's copies are read (a link to a peer is far
//! slower than shared memory, and all CTAs finish their tiles at about the same time).

use super::setup::{OperandRing, panel_ring, stage_readers};
use crate::abi::WaitKind;
use crate::config::{PANEL_BUFS, PANEL_BYTES, TileConfig};
use crate::machine::{Aborted, BulkCopy, Mbarriers, WarpgroupMma, Watch};
use crate::pipeline::ring::ReadySlot;
use crate::pipeline::state::{Phases, PipelineState};
use crate::pipeline::wait::wait_mbarrier;
use crate::shape::{Role, SmemAddr, min};

/// Runs `$body` once for every panel index below `$count`, with `$panel` a constant: accumulators take no other index.
macro_rules! for_each_panel {
    ($count:expr, $panel:ident => $body:block) => {{
        let count = $count;
        for_each_panel!(@one count, $panel, 0, $body);
        for_each_panel!(@one count, $panel, 1, $body);
        for_each_panel!(@one count, $panel, 2, $body);
        for_each_panel!(@one count, $panel, 3, $body);
        for_each_panel!(@one count, $panel, 4, $body);
        for_each_panel!(@one count, $panel, 5, $body);
        for_each_panel!(@one count, $panel, 6, $body);
        for_each_panel!(@one count, $panel, 7, $body);
    }};
    (@one $count:ident, $panel:ident, $idx:literal, $body:block) => {{
        const $panel: u32 = $idx;
        if $idx < C::PANELS && $idx < $count $body
    }};
}
pub(crate) use for_each_panel;

/// Panels of a tile with `panels` panels that go through the panel buffers.
#[inline(always)]
pub const fn buffered_panels(panels: u32) -> u32 {
    min(panels, PANEL_BUFS)
}

/// Stages that a tile with `panels` panels borrows.
#[inline(always)]
pub const fn lent_stages<C: TileConfig>(panels: u32) -> u32 {
    (panels - buffered_panels(panels)).div_ceil(C::LENT_PANELS)
}

/// Where consumer `consumer` writes the `idx`-th of its panels in lent stage `stage`.
#[inline(always)]
fn lent_panel<C: TileConfig>(stage: u32, consumer: u32, idx: u32) -> SmemAddr {
    C::SMEM.stage(stage).plus((consumer * C::LENT_PANELS + idx) * PANEL_BYTES)
}

/// Where consumer and storer stand in both rings.
#[derive(Clone, Copy)]
pub struct EpilogueState<const STAGES: u32> {
    /// Next use of the operand ring.
    pub operands: PipelineState<STAGES>,
    /// Next use of the panel buffers.
    pub panels: PipelineState<PANEL_BUFS>,
    /// Phases of the lent stages' barriers (storer).
    pub lent: Phases,
}

impl<const STAGES: u32> Default for EpilogueState<STAGES> {
    fn default() -> Self {
        Self { operands: PipelineState::start(), panels: PipelineState::start(), lent: Phases::default() }
    }
}

/// Consumer: hands the first `panels` panels of `acc` to the storer.
#[inline(always)]
pub fn write_panels<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const STAGES: u32>(
    operands: &OperandRing<'_, M, STAGES>,
    state: &mut EpilogueState<STAGES>,
    consumer: u32,
    panels: u32,
    acc: &M::Acc,
) -> Result<(), Aborted> {
    let m = operands.m;
    let ring = panel_ring::<M, C>(m, Role::Consumer(consumer), consumer);
    let mut stage = 0;
    for_each_panel!(panels, PANEL => {
        let panel = m.panel::<PANEL>(acc);
        if PANEL < PANEL_BUFS {
            let slot = ring.producer_acquire(state.panels)?;
            m.store_panel(C::SMEM.panel(consumer, slot.index()), &panel);
            ring.producer_commit(slot);
            state.panels.advance();
        } else {
            let idx = (PANEL - PANEL_BUFS) % C::LENT_PANELS;
            if idx == 0 {
                stage = operands.consumer_hand_on(operands.consumer_wait(state.operands)?);
                state.operands.advance();
            }
            m.store_panel(lent_panel::<C>(stage, consumer, idx), &panel);
            if idx + 1 == C::LENT_PANELS || PANEL + 1 == panels {
                m.arrive(C::SMEM.lent_full().at(stage));
            }
        }
    });
    Ok(())
}

/// Storer: takes `panels` panels from every consumer and gives each to `store(consumer, panel, source)`, which issues bulk
/// stores or none. Every source has been read when it returns; destinations may still be being written.
#[inline(always)]
pub fn store_panels<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    operands: &OperandRing<'_, M, STAGES>,
    state: &mut EpilogueState<STAGES>,
    panels: u32,
    store: impl Fn(u32, u32, SmemAddr),
) -> Result<(), Aborted> {
    let m = operands.m;
    let mut reading: Option<(u32, ReadySlot)> = None;
    let buffered = buffered_panels(panels);
    let mut panel = 0;
    while panel < buffered {
        let mut consumer = 0;
        while consumer < C::CONSUMERS {
            let slot = panel_ring::<M, C>(m, Role::Storer, consumer).consumer_wait(state.panels)?;
            store(consumer, panel, C::SMEM.panel(consumer, slot.index()));
            m.commit_group();
            if let Some((of, read)) = reading.replace((consumer, slot)) {
                m.wait_group_read::<1>();
                panel_ring::<M, C>(m, Role::Storer, of).consumer_release(read);
            }
            consumer += 1;
        }
        state.panels.advance();
        panel += 1;
    }
    if let Some((of, read)) = reading {
        m.wait_group_read::<0>();
        panel_ring::<M, C>(m, Role::Storer, of).consumer_release(read);
    }
    while panel < panels {
        let stage = state.operands.index();
        let bar = C::SMEM.lent_full().at(stage);
        wait_mbarrier(m, Role::Storer, WaitKind::LentFull, stage, bar, state.lent.next(stage))?;
        let count = min(panels - panel, C::LENT_PANELS);
        let mut consumer = 0;
        while consumer < C::CONSUMERS {
            let mut idx = 0;
            while idx < count {
                store(consumer, panel + idx, lent_panel::<C>(stage, consumer, idx));
                idx += 1;
            }
            consumer += 1;
        }
        m.commit_group();
        m.wait_group_read::<0>();
        operands.consumer_release_many(operands.consumer_take_over(state.operands), stage_readers::<C>());
        state.operands.advance();
        panel += count;
    }
    Ok(())
}
