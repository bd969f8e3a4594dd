//! Transport *staged*: tiles that other CTAs stored locally are carried to their owners through the operand ring.

use super::setup::{OperandRing, stage_readers};
use crate::config::{PANEL_BYTES, TileConfig};
use crate::layout::slot::{TileExtent, panel_offset};
use crate::machine::{Aborted, BulkCopy, Mbarriers, Watch};
use crate::pipeline::state::PipelineState;
use crate::shape::GlobalAddr;

/// Producer: brings one staged tile at `src` into the ring, one stage for each consumer's half that exists.
#[inline(always)]
pub fn pick_up<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    extent: TileExtent,
    src: GlobalAddr,
) -> Result<(), Aborted> {
    let panels = extent.panels::<C>();
    let mut consumer = 0;
    while consumer < C::CONSUMERS {
        let bytes = extent.panel_bytes(consumer);
        if bytes > 0 {
            let free = ring.producer_acquire(*state)?;
            let stage = C::SMEM.stage(free.index());
            let slot = ring.producer_expect(free, panels * bytes);
            let mut panel = 0;
            while panel < panels {
                let from = src.plus(panel_offset::<C>(consumer, panel) as u64);
                ring.m.load_bytes(stage.plus(panel * PANEL_BYTES), from, bytes, slot.full());
                panel += 1;
            }
            state.advance();
        }
        consumer += 1;
    }
    Ok(())
}

/// Storer: writes one tile from the ring to `dst` as one bulk group; its sources have been read when it returns.
#[inline(always)]
pub fn deliver<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    extent: TileExtent,
    dst: GlobalAddr,
) -> Result<(), Aborted> {
    let first = *state;
    let panels = extent.panels::<C>();
    let mut consumer = 0;
    while consumer < C::CONSUMERS {
        let bytes = extent.panel_bytes(consumer);
        if bytes > 0 {
            let stage = C::SMEM.stage(ring.consumer_wait(*state)?.index());
            let mut panel = 0;
            while panel < panels {
                let to = dst.plus(panel_offset::<C>(consumer, panel) as u64);
                ring.m.store_bytes(to, stage.plus(panel * PANEL_BYTES), bytes);
                panel += 1;
            }
            state.advance();
        }
        consumer += 1;
    }
    ring.m.commit_group();
    ring.m.wait_group_read::<0>();
    let mut read = first;
    while read != *state {
        ring.consumer_release_many(ring.consumer_take_over(read), stage_readers::<C>());
        read.advance();
    }
    Ok(())
}
