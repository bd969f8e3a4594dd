//! Transport *staged*: tiles that other CTAs stored locally are carried to their owners through the operand ring.

use super::setup::{OperandRing, stage_readers};
use crate::config::{PANEL_BYTES, TileConfig};
use crate::layout::slot::{TileExtent, panel_offset};
use crate::machine::{Aborted, BulkCopy, Mbarriers, Watch};
use crate::pipeline::ring::ReadySlot;
use crate::pipeline::state::PipelineState;
use crate::shape::{GlobalAddr, min};

/// Calls `$body` for each load of a tile that fits a stage: up to `CARRY_PANELS` panels of one consumer that exist.
macro_rules! for_each_load {
    ($extent:expr, |$consumer:ident, $first:ident, $count:ident| $body:block) => {{
        let mut $consumer = 0;
        while $consumer < C::CONSUMERS {
            let mut $first = 0;
            while $extent.rows_of($consumer) > 0 && $first < $extent.panels::<C>() {
                let $count = min($extent.panels::<C>() - $first, C::CARRY_PANELS);
                $body
                $first += $count;
            }
            $consumer += 1;
        }
    }};
}

/// Producer: brings one staged tile at `src` into the ring.
#[inline(always)]
pub fn pick_up<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    extent: TileExtent,
    src: GlobalAddr,
) -> Result<(), Aborted> {
    for_each_load!(extent, |consumer, first, count| {
        let bytes = extent.panel_bytes(consumer);
        let free = ring.producer_acquire(*state)?;
        let stage = C::SMEM.stage(free.index());
        let slot = ring.producer_expect(free, count * bytes);
        let mut panel = 0;
        while panel < count {
            let from = src.plus(panel_offset::<C>(consumer, first + panel) as u64);
            ring.m.load_bytes(stage.plus(panel * PANEL_BYTES), from, bytes, slot.full());
            panel += 1;
        }
        state.advance();
    });
    Ok(())
}

/// Storer: writes one tile from the ring to `dst`, one bulk group for each load; returns how many. The last load's stage is
/// still being read then: it is kept in `reading`, and released when the next load's stores are on their way.
#[inline(always)]
pub fn deliver<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    reading: &mut Option<ReadySlot>,
    extent: TileExtent,
    dst: GlobalAddr,
) -> Result<u32, Aborted> {
    let mut loads = 0;
    for_each_load!(extent, |consumer, first, count| {
        let bytes = extent.panel_bytes(consumer);
        let slot = ring.consumer_wait(*state)?;
        let stage = C::SMEM.stage(slot.index());
        let mut panel = 0;
        while panel < count {
            let to = dst.plus(panel_offset::<C>(consumer, first + panel) as u64);
            ring.m.store_bytes(to, stage.plus(panel * PANEL_BYTES), bytes);
            panel += 1;
        }
        ring.m.commit_group();
        if let Some(read) = reading.replace(slot) {
            ring.m.wait_group_read::<1>();
            ring.consumer_release_many(read, stage_readers::<C>());
        }
        state.advance();
        loads += 1;
    });
    Ok(loads)
}
