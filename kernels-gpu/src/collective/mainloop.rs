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

/// Producer: brings stages `k_begin..k_end` along K of the tile whose first row of D is `row` and first column `col`.
/// `a_box` and `b_box` are the boxes of their tensor maps: `C::A_BOX` and `C::B_BOX`, or those cut to what exists.
#[inline(always)]
pub fn load_operands<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    row: u32,
    col: u32,
    [k_begin, k_end]: [u32; 2],
    [a_box, b_box]: [TileBox; 2],
) -> Result<(), Aborted> {
    let mut k_tile = k_begin;
    while k_tile < k_end {
        let free = ring.producer_acquire(*state)?;
        let stage = C::SMEM.stage(free.index());
        let slot = ring.producer_expect(free, a_box.total_bytes() + b_box.total_bytes());
        let k = k_tile * C::TILE_K;
        load_operand(ring.m, Operand::A, C::A_MAJOR, a_box, stage, row, k, &slot);
        load_operand(ring.m, Operand::B, C::B_MAJOR, b_box, stage.plus(C::A_BOX.total_bytes()), col, k, &slot);
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

/// Consumer `consumer`: multiplies `k_tiles` stages into `acc`, which is overwritten (zeros when there is none). Of its
/// half of A and of B so many rows exist as `rows` says.
///
/// One multiplication stays in flight: a stage is released when the next one's has been issued.
#[inline(always)]
pub fn multiply<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    consumer: u32,
    rows: [u32; 2],
    k_tiles: u32,
    acc: &mut M::Acc,
) -> Result<(), Aborted> {
    if k_tiles == 0 {
        *acc = ring.m.zero_acc();
        return Ok(());
    }
    if C::PROMOTES {
        return multiply_promoted(ring, state, consumer, rows, k_tiles, acc);
    }
    // 64 rows of A: rows of one box when K is contiguous, a box of their own when M is.
    let a_offset = consumer * PANEL_ROWS * ROW_BYTES;
    let issue = |acc: &mut M::Acc, slot: &ReadySlot, accumulate| {
        let stage = C::SMEM.stage(slot.index());
        let operands = [stage.plus(a_offset), stage.plus(C::A_BOX.total_bytes())];
        ring.m.issue_mma_of_rows(acc, operands, rows, accumulate);
    };
    // The first stage by itself: of a multiplication that never accumulates ptxas knows that it reads no sums. Zeros
    // would be made between tiles, 4 cycles for two registers, while the tensor cores have nothing to do.
    let mut outcome = ring.consumer_wait(*state).map(drop);
    let mut reading = ring.consumer_take_over(*state);
    issue(acc, &reading, false);
    state.advance();
    let mut k_tile = 1;
    while k_tile < k_tiles {
        if outcome.is_ok() {
            // Whoever gives up multiplies on, whatever lies there, releases nothing and leaves behind the loop: left in
            // the middle, ptxas would keep nothing of it in uniform registers, and serialise multiplications (C7518).
            outcome = ring.consumer_wait(*state).map(drop);
        }
        let slot = ring.consumer_take_over(*state);
        issue(acc, &slot, true);
        ring.m.wait_mma::<1>(acc);
        let read = core::mem::replace(&mut reading, slot);
        if outcome.is_ok() {
            ring.consumer_release(read);
        }
        state.advance();
        k_tile += 1;
    }
    ring.m.wait_mma::<0>(acc);
    if outcome.is_ok() {
        ring.consumer_release(reading);
    }
    outcome
}

/// The same where sums are promoted, of at least one stage. No multiplication stays in flight: while one consumer adds,
/// the other's keeps the tensor cores busy, if whoever adds issues its next one before that ends. So all that the next
/// one needs is found while this one runs: where its operands lie, and mostly that they are there.
#[inline(always)]
fn multiply_promoted<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    consumer: u32,
    rows: [u32; 2],
    k_tiles: u32,
    acc: &mut M::Acc,
) -> Result<(), Aborted> {
    let operands = |state: PipelineState<STAGES>| {
        let stage = C::SMEM.stage(state.index());
        let a = stage.plus(consumer * PANEL_ROWS * ROW_BYTES);
        ring.m.operands(a, stage.plus(C::A_BOX.total_bytes()))
    };
    let mut next = operands(*state);
    let mut is_filled = false;
    // No closure, which LLVM would not inline twice.
    macro_rules! stage {
        ($accumulate:literal) => {
            if !is_filled && let Err(aborted) = ring.consumer_wait(*state) {
                if !$accumulate {
                    // Nobody reads them, but zeros from before would be set in front of the wait.
                    *acc = ring.m.zero_acc();
                }
                return Err(aborted);
            }
            let slot = ring.consumer_take_over(*state);
            ring.m.issue_mma_at(acc, next, rows, $accumulate);
            state.advance();
            next = operands(*state);
            is_filled = ring.consumer_test(*state);
            ring.m.wait_mma::<0>(acc);
            ring.consumer_release(slot);
            ring.m.promote(acc, $accumulate);
        };
    }
    // The first stage by itself: see `multiply`.
    stage!(false);
    let mut k_tile = 1;
    while k_tile < k_tiles {
        stage!(true);
        k_tile += 1;
    }
    Ok(())
}
