//! The main loop: operand tiles into the ring, and out of it into the accumulator.

use super::setup::OperandRing;
use crate::abi::Operand;
use crate::config::{Major, PANEL_ROWS, ROW_BYTES, TileBox, TileConfig};
use crate::machine::{Aborted, BulkCopy, Mbarriers, WarpgroupMma, Watch};
use crate::pipeline::ring::{FillingSlot, ReadySlot};
use crate::pipeline::state::PipelineState;
use crate::shape::SmemAddr;

/// Columns of a box of 16-bit elements.
const MN_BOX_COLS: u32 = ROW_BYTES / 2;

/// Producer: brings the `k_tiles` stages of the tile whose first row of D is `row` and first column `col`. `a_box` is the box of
/// A's tensor map: `C::A_BOX`, or that cut to the rows of the call.
#[inline(always)]
pub fn load_operands<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    row: u32,
    col: u32,
    k_tiles: u32,
    a_box: TileBox,
) -> Result<(), Aborted> {
    let mut k_tile = 0;
    while k_tile < k_tiles {
        let free = ring.producer_acquire(*state)?;
        let stage = C::SMEM.stage(free.index());
        let slot = ring.producer_expect(free, a_box.total_bytes() + C::B_BOX.total_bytes());
        let k = k_tile * C::TILE_K;
        load_operand(ring.m, Operand::A, C::A_MAJOR, a_box, stage, row, k, &slot);
        load_operand(ring.m, Operand::B, C::B_MAJOR, C::B_BOX, stage.plus(C::A_BOX.total_bytes()), col, k, &slot);
        state.advance();
        k_tile += 1;
    }
    Ok(())
}

/// One operand of a stage: `at` is its place along M or N, `k` along K.
#[expect(clippy::too_many_arguments, reason = "a copy has a source, a destination and a barrier")]
#[inline(always)]
fn load_operand<M: BulkCopy>(
    m: &M,
    operand: Operand,
    major: Major,
    tile_box: TileBox,
    dst: SmemAddr,
    at: u32,
    k: u32,
    slot: &FillingSlot,
) {
    match major {
        Major::K => m.load_box(dst, operand, at, k, slot.full()),
        Major::Mn => {
            let mut idx = 0;
            while idx < tile_box.count {
                let dst = dst.plus(idx * tile_box.bytes());
                m.load_box(dst, operand, k, at + idx * MN_BOX_COLS, slot.full());
                idx += 1;
            }
        }
    }
}

/// Consumer `consumer`: multiplies `k_tiles` stages into `acc`, which is overwritten (zeros when there is none). The first `rows`
/// rows of its half of A exist.
///
/// One multiplication stays in flight: a stage is released when the next one's has been issued. Where sums are promoted,
/// none does: while one consumer adds, the other's multiplication keeps the tensor cores busy.
#[inline(always)]
pub fn multiply<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    consumer: u32,
    rows: u32,
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
        // 64 rows of A: rows of one box when K is contiguous, a box of their own when M is.
        let a = stage.plus(consumer * PANEL_ROWS * ROW_BYTES);
        ring.m.issue_mma_of_rows(acc, a, rows, stage.plus(C::A_BOX.total_bytes()), k_tile > 0);
        if C::PROMOTES {
            ring.m.wait_mma::<0>(acc);
            ring.consumer_release(slot);
            ring.m.promote(acc);
        } else {
            ring.m.wait_mma::<1>(acc);
            if let Some(read) = reading.replace(slot) {
                ring.consumer_release(read);
            }
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
