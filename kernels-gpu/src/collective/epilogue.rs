//! After the last k: the accumulator goes, panel by panel, from the consumers to the storer.

use super::setup::{PanelRing, panel_ring};
use crate::abi::Scales;
use crate::config::TileConfig;
use crate::machine::{Aborted, BulkCopy, Mbarriers, Signals, WarpgroupMma, Watch};
use crate::pipeline::ring::ReadySlot;
use crate::pipeline::state::PipelineState;
use crate::shape::{GlobalAddr, Role, SmemAddr};

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

/// Consumer: the factor by which sums of products are multiplied: both scales, rounded once; 1 where operands have none.
#[inline(always)]
pub fn scale_factor<M: Signals, C: TileConfig>(m: &M, scales: &Scales) -> f32 {
    let one = |addr: GlobalAddr| if addr.0 == 0 { 1.0 } else { f32::from_bits(m.load_acquire_gpu(addr)) };
    if C::PROMOTES { one(scales[0]) * one(scales[1]) } else { 1.0 }
}

/// Consumer: multiplies `acc` by what [`scale_factor`] gave.
#[inline(always)]
pub fn scale<M: WarpgroupMma<C>, C: TileConfig>(m: &M, acc: &mut M::Acc, factor: f32) {
    if C::PROMOTES {
        m.scale(acc, factor);
    }
}

/// Consumer: hands the first `panels` panels of `acc` to the storer.
#[inline(always)]
pub fn write_panels<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const BUFS: u32>(
    ring: &PanelRing<'_, M, BUFS>,
    state: &mut PipelineState<BUFS>,
    consumer: u32,
    panels: u32,
    acc: &M::Acc,
) -> Result<(), Aborted> {
    for_each_panel!(panels, PANEL => {
        let slot = ring.producer_acquire(*state)?;
        ring.m.store_panel(C::SMEM.panel(consumer, slot.index()), &ring.m.panel::<PANEL>(acc));
        ring.producer_commit(slot);
        state.advance();
    });
    Ok(())
}

/// Storer: takes `panels` panels from every consumer and gives each to `store(consumer, panel, source)`, which issues bulk
/// stores or none. Every source has been read when it returns; destinations may still be being written.
#[inline(always)]
pub fn store_panels<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const BUFS: u32>(
    m: &M,
    state: &mut PipelineState<BUFS>,
    panels: u32,
    store: impl Fn(u32, u32, SmemAddr),
) -> Result<(), Aborted> {
    let mut reading: Option<(u32, ReadySlot)> = None;
    let mut panel = 0;
    while panel < panels {
        let mut consumer = 0;
        while consumer < C::CONSUMERS {
            let slot = panel_ring::<M, C, BUFS>(m, Role::Storer, consumer).consumer_wait(*state)?;
            store(consumer, panel, C::SMEM.panel(consumer, slot.index()));
            m.commit_group();
            if let Some((of, read)) = reading.replace((consumer, slot)) {
                m.wait_group_read::<1>();
                panel_ring::<M, C, BUFS>(m, Role::Storer, of).consumer_release(read);
            }
            consumer += 1;
        }
        state.advance();
        panel += 1;
    }
    m.wait_group_read::<0>();
    if let Some((of, read)) = reading {
        panel_ring::<M, C, BUFS>(m, Role::Storer, of).consumer_release(read);
    }
    Ok(())
}
