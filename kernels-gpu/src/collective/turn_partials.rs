//! Reduction in the epilogue by consumers that take turns: what [`super::partials`] is for consumers that multiply together.
//!
//! Each own tile is one consumer's, both halves of it, and so are the buffers that peers' panels come through. What one
//! consumer adds, the other's multiplications hide.

use super::epilogue::for_each_panel;
use super::partials::sum_over_ranks;
use super::ping_pong::HALVES;
use super::setup::partial_ring;
use crate::abi::WaitKind;
use crate::config::{PANEL_BUFS, PANEL_BYTES, ROW_BYTES, TileConfig};
use crate::layout::slot::TileExtent;
use crate::machine::{Aborted, BulkCopy, Mbarriers, ThreadRole, WarpgroupMma, Watch};
use crate::pipeline::state::PipelineState;
use crate::pipeline::wait::wait_mbarrier;
use crate::shape::{GlobalAddr, Role, SmemAddr, WARPS_PER_WARPGROUP, div_rem, max};

/// The turn at an own tile: numbered among all turns of the CTA, and among those at own tiles. Even turns are consumer 0's.
#[derive(Clone, Copy, Debug)]
pub struct OwnTurn {
    /// Among all turns.
    pub turn: u32,
    /// Among those at own tiles.
    pub nth: u32,
}

impl OwnTurn {
    /// The first, after `before` turns at tiles of other owners.
    #[inline(always)]
    pub const fn first(before: u32) -> Self {
        Self { turn: before, nth: 0 }
    }

    /// The next one of the CTA.
    #[inline(always)]
    pub const fn next(self) -> Self {
        Self { turn: self.turn + 1, nth: self.nth + 1 }
    }

    /// Whose turn it is.
    #[inline(always)]
    pub const fn consumer(self) -> u32 {
        self.turn % 2
    }

    /// Whether it is its consumer's first.
    #[inline(always)]
    pub const fn is_consumers_first(self) -> bool {
        self.nth < 2
    }

    /// Panels that its consumer has finished before, but for whole laps of the ring: states repeat after two.
    #[inline(always)]
    const fn panels_before<C: TileConfig>(self) -> u32 {
        self.nth / 2 % (2 * PANEL_BUFS) * HALVES * C::PANELS
    }
}

/// Panels that the loader brings for one panel of an own tile: one for each peer; an empty one where there is none, since
/// the result needs a buffer.
#[inline(always)]
pub const fn loads_for(world: u32) -> u32 {
    max(world - 1, 1)
}

/// How much of a tile exists, in one register; else as [`TileExtent`].
#[derive(Clone, Copy, Debug)]
pub struct LivePanels(u32);

impl LivePanels {
    /// Of a tile of which `extent` exists.
    #[inline(always)]
    pub const fn of<C: TileConfig>(extent: TileExtent) -> Self {
        Self(extent.rows * (C::PANELS + 1) + extent.panels::<C>())
    }

    /// Bytes of the existing rows of panel `panel` of the tile, counted through both halves.
    #[inline(always)]
    pub const fn bytes<C: TileConfig>(self, panel: u32) -> u32 {
        let (rows, panels) = div_rem(self.0, C::PANELS + 1);
        let (half, at) = div_rem(panel, C::PANELS);
        if at < panels { TileExtent { rows, cols: 0 }.panel_bytes(half) } else { 0 }
    }
}

/// Panels that `consumer` has for others in the CTA's first `turns` turns.
#[inline(always)]
pub const fn panels_for_others<C: TileConfig>(consumer: u32, turns: u32) -> u32 {
    (turns + 1 - consumer) / 2 * HALVES * C::PANELS
}

/// Loader: brings the peers' panels of an own tile, in rank order. `who()` is this rank and the number of ranks, `slot(peer)` is
/// where that peer's tile lies.
#[inline(always)]
pub fn load_partials_of<M: ThreadRole, C: TileConfig>(
    m: &M,
    at: OwnTurn,
    live: LivePanels,
    who: impl Fn() -> (u32, u32),
    slot: impl Fn(u32) -> GlobalAddr,
) -> Result<(), Aborted> {
    let ring = partial_ring::<M, C>(m, Role::Loader, at.consumer());
    // A number, not a state, which would be two.
    let mut uses = at.panels_before::<C>() * loads_for(who().1);
    let mut panel = 0;
    while panel < HALVES * C::PANELS {
        let mut peer = 0;
        loop {
            let (rank, world) = who();
            if peer >= world {
                break;
            }
            if peer != rank || world == 1 {
                let free = ring.producer_acquire(PipelineState::start().advanced_by(uses))?;
                let bytes = live.bytes::<C>(panel);
                if bytes == 0 || peer == rank {
                    ring.producer_commit(free);
                } else {
                    let dst = C::SMEM.panel(at.consumer(), free.index());
                    let filling = ring.producer_expect(free, bytes);
                    m.load_bytes(dst, slot(peer).plus((panel * PANEL_BYTES) as u64), bytes, filling.full());
                }
                uses += 1;
            }
            peer += 1;
        }
        panel += 1;
    }
    Ok(())
}

/// Consumer: adds the peers' panels of one half of an own tile to `own`, in rank order, and hands the sums to the storer. It is
/// the consumer's half number `nth_half` of all its own tiles', of which `live` exists.
#[inline(always)]
pub fn add_partials_of_half<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig>(
    m: &M,
    state: &mut PipelineState<PANEL_BUFS>,
    consumer: u32,
    nth_half: u32,
    live: LivePanels,
    who: impl Fn() -> (u32, u32),
    own: &M::Rounded,
) -> Result<(), Aborted> {
    let ring = partial_ring::<M, C>(m, Role::Consumer(consumer), consumer);
    for_each_panel!(C::PANELS, PANEL => {
        let own = || m.rounded_panel::<PANEL>(own);
        let rows = || live.bytes::<C>(nth_half % HALVES * C::PANELS + PANEL) / ROW_BYTES;
        let mut sum = m.zero_panel();
        sum_over_ranks::<M, C>(&ring, state, consumer, &rows, &who, own, &mut sum)?;
        if who().1 == 1 {
            let _freed_by_the_storer = ring.consumer_wait(*state)?;
        }
        if rows() > 0 {
            m.store_panel(C::SMEM.panel(consumer, state.index()), &sum);
        }
        state.advance();
        // The storer reads the buffer next, and frees it.
        m.arrive(C::SMEM.result_full(consumer).at((nth_half * C::PANELS + PANEL) % PANEL_BUFS));
    });
    Ok(())
}

/// Storer: takes the results of an own tile, for each panel of which the loader brought `loads`, and gives each to
/// `store(half, panel, source)`.
#[inline(always)]
pub fn store_results_of<M: Mbarriers + Watch + BulkCopy, C: TileConfig>(
    m: &M,
    at: OwnTurn,
    loads: u32,
    store: impl Fn(u32, u32, SmemAddr),
) -> Result<(), Aborted> {
    let consumer = at.consumer();
    let ring = partial_ring::<M, C>(m, Role::Storer, consumer);
    let before = at.panels_before::<C>();
    let mut loaded = PipelineState::start().advanced_by(before * loads);
    let mut result = PipelineState::<PANEL_BUFS>::start().advanced_by(before);
    let mut panel = 0;
    while panel < HALVES * C::PANELS {
        // The result lies in the buffer of the panel's last source.
        let last = loaded.advanced_by(loads - 1);
        let (buf, parity) = (result.index(), result.full_parity());
        let bar = C::SMEM.result_full(consumer).at(buf);
        wait_mbarrier(m, Role::Storer, WaitKind::ResultFull, consumer * PANEL_BUFS + buf, bar, parity)?;
        let (half, nth) = div_rem(panel, C::PANELS);
        store(half, nth, C::SMEM.panel(consumer, last.index()));
        m.commit_group();
        // One at a time, as for tiles of others.
        m.wait_group_read::<0>();
        ring.consumer_release_many(ring.consumer_take_over(last), WARPS_PER_WARPGROUP);
        loaded = last.advanced_by(1);
        result.advance();
        panel += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type C = crate::config::Tile128x192;

    #[test]
    fn live_panels_are_those_of_the_extent() {
        for rows in [0, 1, 63, 64, 65, 127, 128] {
            for cols in [0, 1, 63, 64, 65, 128, 129, 191, 192] {
                let extent = TileExtent { rows, cols };
                let live = LivePanels::of::<C>(extent);
                for (half, panel) in (0..HALVES).flat_map(|half| (0..C::PANELS).map(move |panel| (half, panel))) {
                    let bytes = if panel < extent.panels::<C>() { extent.panel_bytes(half) } else { 0 };
                    assert_eq!(live.bytes::<C>(half * C::PANELS + panel), bytes, "{extent:?}, {half}, {panel}");
                }
            }
        }
    }

    #[test]
    fn turns_count_each_consumers_panels() {
        for before in 0..5 {
            let mut done = [0; 2];
            let mut at = OwnTurn::first(before);
            for _ in 0..100 {
                let consumer = at.consumer();
                assert_eq!(at.turn % 2, consumer);
                assert_eq!(at.is_consumers_first(), done[consumer as usize] == 0);
                for loads in 1..=7 {
                    let state = |uses| PipelineState::<PANEL_BUFS>::start().advanced_by(uses);
                    let (counted, told) = (done[consumer as usize] * loads, at.panels_before::<C>() * loads);
                    assert_eq!(state(counted), state(told), "{at:?}, {loads} loads");
                }
                done[consumer as usize] += HALVES * C::PANELS;
                at = at.next();
            }
        }
    }
}
