//! The main loop: operand tiles into the ring, and out of it into the accumulator.

use super::setup::OperandRing;
use crate::abi::Operand;
use crate::config::{PANEL_ROWS, ROW_BYTES, TileConfig};
use crate::machine::{Aborted, BulkCopy, Mbarriers, WarpgroupMma, Watch};
use crate::pipeline::ring::ReadySlot;
use crate::pipeline::state::PipelineState;

/// Producer: brings the `k_tiles` stages of the tile whose first row of A is `row` and first row of B is `col`.
#[inline(always)]
pub fn load_operands<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    row: u32,
    col: u32,
    k_tiles: u32,
) -> Result<(), Aborted> {
    let mut k_tile = 0;
    while k_tile < k_tiles {
        let free = ring.producer_acquire(*state)?;
        let stage = C::SMEM.stage(free.index());
        let slot = ring.producer_expect(free, C::STAGE_BYTES);
        ring.m.load_box(stage, Operand::A, row, k_tile * C::TILE_K, slot.full());
        ring.m.load_box(stage.plus(C::A_BOX.bytes()), Operand::B, col, k_tile * C::TILE_K, slot.full());
        state.advance();
        k_tile += 1;
    }
    Ok(())
}

/// Consumer `consumer`: multiplies `k_tiles` stages into `acc`, which is overwritten (zeros when there is none).
///
/// One multiplication stays in flight: a stage is released when the next one's has been issued.
#[inline(always)]
pub fn multiply<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    consumer: u32,
    k_tiles: u32,
    acc: &mut M::Acc,
) -> Result<(), Aborted> {
    let mut reading: Option<ReadySlot> = None;
    let mut outcome = Ok(());
    let mut k_tile = 0;
    while k_tile < k_tiles {
        let slot = match ring.consumer_wait(*state) {
            Ok(slot) => slot,
            Err(aborted) => {
                // Leaving here would leave a multiplication running; ptxas then serialises them all (C7518).
                outcome = Err(aborted);
                break;
            }
        };
        let stage = C::SMEM.stage(slot.index());
        let a = stage.plus(consumer * PANEL_ROWS * ROW_BYTES);
        ring.m.issue_mma(acc, a, stage.plus(C::A_BOX.bytes()), k_tile > 0);
        ring.m.wait_mma::<1>(acc);
        if let Some(read) = reading.replace(slot) {
            ring.consumer_release(read);
        }
        state.advance();
        k_tile += 1;
    }
    ring.m.wait_mma::<0>(acc);
    if let Some(read) = reading {
        ring.consumer_release(read);
    }
    outcome
}
