//! Two consumers that multiply whole tiles in turns: while one writes its sums, the other has the tensor cores.
//!
//! A stage is read by one consumer, whose tile it belongs to. Turns are what keeps the other from waiting for stages of
//! a later lap: a barrier tells laps apart by parity alone.

use super::setup::{OperandRing, init_barriers_for, panel_ring};
use crate::abi::WaitKind;
use crate::config::{PANEL_BUFS, PANEL_BYTES, PANEL_ROWS, TileConfig};
use crate::machine::{Aborted, BulkCopy, Mbarriers, WarpgroupMma, Watch};
use crate::pipeline::ring::ReadySlot;
use crate::pipeline::state::PipelineState;
use crate::pipeline::wait::wait_mbarrier;
use crate::shape::{Parity, Role, SmemAddr, WARPS_PER_WARPGROUP, div_rem};

/// Halves of a tile: 64 rows each.
pub const HALVES: u32 = 2;

/// Initialises every barrier. By one thread, before the roles start.
#[inline(always)]
pub fn init_turn_barriers<M: Mbarriers, C: TileConfig>(m: &M) {
    const { assert!(C::CONSUMERS == HALVES && C::TILE_M == HALVES * PANEL_ROWS, "two consumers, each for 128 rows") };
    init_barriers_for::<M, C>(m, WARPS_PER_WARPGROUP);
    let mut consumer = 0;
    while consumer < C::CONSUMERS {
        m.mbarrier_init(C::SMEM.turn(consumer), WARPS_PER_WARPGROUP);
        consumer += 1;
    }
}

/// A consumer's turns at the operand stages and the tensor cores.
pub struct Turn {
    consumer: u32,
    parity: Parity,
}

impl Turn {
    /// Before the consumer's first turn.
    #[inline(always)]
    pub const fn start(consumer: u32) -> Self {
        Self::at(consumer)
    }

    /// Before turn `turn` of the CTA: even ones are consumer 0's. For the first of all, on a fresh barrier, the phase
    /// before the first counts as completed.
    #[inline(always)]
    pub const fn at(turn: u32) -> Self {
        let (nth, consumer) = div_rem(turn, 2);
        Self { consumer, parity: Parity((consumer ^ 1 ^ nth) & 1) }
    }

    /// Waits until the other consumer has issued the last multiplication of its tile.
    #[inline(always)]
    pub fn wait<M: Mbarriers + Watch, C: TileConfig>(&mut self, m: &M) -> Result<(), Aborted> {
        let (role, bar) = (Role::Consumer(self.consumer), C::SMEM.turn(self.consumer));
        wait_mbarrier(m, role, WaitKind::Turn, self.consumer, bar, self.parity)?;
        self.parity = Parity(self.parity.0 ^ 1);
        Ok(())
    }

    /// Gives the other consumer its turn.
    #[inline(always)]
    pub fn pass<M: Mbarriers, C: TileConfig>(&self, m: &M) {
        m.arrive(C::SMEM.turn(self.consumer ^ 1));
    }
}

/// Consumer: multiplies `k_tiles` stages, at least one, into the accumulators of both halves, which are overwritten.
/// Calls `issued` once the last multiplication has been issued. The first `rows` rows of each half of A exist.
///
/// One stage stays in flight, as in [`super::mainloop::multiply`].
#[inline(always)]
pub fn multiply_whole<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const STAGES: u32>(
    ring: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    k_tiles: u32,
    rows: [u32; 2],
    top: &mut M::Acc,
    bottom: &mut M::Acc,
    issued: impl FnOnce(),
) -> Result<(), Aborted> {
    let issue = |top: &mut M::Acc, bottom: &mut M::Acc, slot: &ReadySlot, accumulate| {
        let a = C::SMEM.stage(slot.index());
        let b = a.plus(C::A_BOX.total_bytes());
        ring.m.issue_mma_of_rows(top, [a, b], [rows[0], C::TILE_N], accumulate);
        ring.m.issue_mma_of_rows(bottom, [a.plus(PANEL_BYTES), b], [rows[1], C::TILE_N], accumulate);
    };
    // The first stage by itself, and no way out of the loop: see `mainloop::multiply`.
    let mut outcome = ring.consumer_wait(*state).map(drop);
    let mut reading = ring.consumer_take_over(*state);
    issue(top, bottom, &reading, false);
    state.advance();
    let mut k_tile = 1;
    while k_tile < k_tiles {
        if outcome.is_ok() {
            outcome = ring.consumer_wait(*state).map(drop);
        }
        let slot = ring.consumer_take_over(*state);
        issue(top, bottom, &slot, true);
        // Two multiplications a stage.
        ring.m.wait_mma::<2>(top);
        let read = core::mem::replace(&mut reading, slot);
        if outcome.is_ok() {
            ring.consumer_release(read);
        }
        state.advance();
        k_tile += 1;
    }
    issued();
    // Of both halves.
    ring.m.wait_mma::<0>(bottom);
    if outcome.is_ok() {
        ring.consumer_release(reading);
    }
    outcome
}

/// Storer: takes every panel, of both halves, of the `turn`-th tile of the CTA, and gives each to `store(half, panel,
/// source)`, which issues bulk stores or none. Every source has been read when it returns.
#[inline(always)]
pub fn store_whole<M: Mbarriers + Watch + BulkCopy, C: TileConfig>(
    m: &M,
    turn: u32,
    store: impl Fn(u32, u32, SmemAddr),
) -> Result<(), Aborted> {
    // Each consumer's n-th tile takes the same uses of its own ring, whose states repeat after two laps.
    let (nth_tile, consumer) = div_rem(turn, 2);
    let mut state = PipelineState::<PANEL_BUFS>::start().advanced_by(nth_tile % (2 * PANEL_BUFS) * HALVES * C::PANELS);
    let ring = panel_ring::<M, C, PANEL_BUFS>(m, Role::Storer, consumer);
    let mut nth = 0;
    while nth < HALVES * C::PANELS {
        let slot = ring.consumer_wait(state)?;
        let (half, panel) = div_rem(nth, C::PANELS);
        store(half, panel, C::SMEM.panel(consumer, slot.index()));
        m.commit_group();
        // One at a time: a consumer has the time of the other's tile for this, and the storer few registers.
        m.wait_group_read::<0>();
        ring.consumer_release(slot);
        state.advance();
        nth += 1;
    }
    Ok(())
}
