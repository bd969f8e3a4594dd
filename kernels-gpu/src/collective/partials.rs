//! Reduction in the epilogue: peers' partials of the tile that the consumers still hold come through the panel buffers.
//!
//! | role | per panel of an own tile |
//! | --- | --- |
//! | loader | for each peer in rank order: waits for the buffer and the signal, copies the peer's panel in |
//! | consumer | adds peers' and own panel in rank order; overwrites the last peer's panel with the result |
//! | storer | copies the result to D and frees the buffer |
//!
//! Own tiles are the last that a CTA computes. Until then the buffers belong to the ring between consumers and storer;
//! the handover barrier passes them to the loader, which waits for the storer's last reads.

use super::epilogue::for_each_panel;
use super::setup::{PanelRing, panel_ring, partial_ring};
use crate::abi::WaitKind;
use crate::config::{PANEL_BUFS, TileConfig};
use crate::layout::slot::TileExtent;
use crate::machine::{Aborted, BulkCopy, Mbarriers, ThreadRole, WarpgroupMma, Watch};
use crate::pipeline::ring::FillingSlot;
use crate::pipeline::state::PipelineState;
use crate::pipeline::wait::wait_mbarrier;
use crate::shape::{Parity, Role, SmemAddr, WARPS_PER_WARPGROUP, min};

/// Where a role stands in the reduction of own tiles.
#[derive(Clone, Copy)]
pub struct PartialsState<const BUFS: u32> {
    /// Next use of the ring of peers' panels.
    pub ring: PipelineState<BUFS>,
    /// Next use of the result barriers.
    pub result: PipelineState<BUFS>,
}

impl<const BUFS: u32> PartialsState<BUFS> {
    /// Before the first own tile.
    #[inline(always)]
    pub const fn start() -> Self {
        Self { ring: PipelineState::start(), result: PipelineState::start() }
    }
}

/// Loader: waits until the buffers are its own, after `panels_before` panels of other tiles.
#[inline(always)]
pub fn take_buffers<M: Mbarriers + Watch, C: TileConfig, const BUFS: u32>(
    m: &M,
    panels_before: u32,
) -> Result<(), Aborted> {
    let mut consumer = 0;
    while consumer < C::CONSUMERS {
        let handover = C::SMEM.handover(consumer);
        wait_mbarrier(m, Role::Loader, WaitKind::Handover, consumer, handover, Parity::of_phase(0))?;
        let state = PipelineState::start().advanced_by(panels_before);
        panel_ring::<M, C, BUFS>(m, Role::Loader, consumer).producer_tail(state, min(panels_before, BUFS))?;
        consumer += 1;
    }
    Ok(())
}

/// Loader: brings the sources' panels of one own tile: peers' partials, and what an epilogue adds. `ready(source)` waits
/// until it is there; `bytes(source, consumer)` is what one panel brings, 0 for a buffer that is handed on as it is;
/// `load(source, consumer, panel, destination, full)` issues the copy.
#[inline(always)]
pub fn load_partials<M: ThreadRole, C: TileConfig, const BUFS: u32>(
    m: &M,
    state: &mut PartialsState<BUFS>,
    extent: TileExtent,
    sources: impl Iterator<Item = u32> + Clone,
    ready: impl Fn(u32) -> Result<(), Aborted>,
    bytes: impl Fn(u32, u32) -> u32,
    load: impl Fn(u32, u32, u32, SmemAddr, &FillingSlot),
) -> Result<(), Aborted> {
    let mut panel = 0;
    while panel < extent.panels::<C>() {
        for source in sources.clone() {
            if panel == 0 {
                ready(source)?;
            }
            let mut consumer = 0;
            while consumer < C::CONSUMERS {
                let ring = partial_ring::<M, C, BUFS>(m, Role::Loader, consumer);
                let free = ring.producer_acquire(state.ring)?;
                let dst = C::SMEM.panel(consumer, free.index());
                let bytes = bytes(source, consumer);
                if bytes == 0 {
                    ring.producer_commit(free);
                } else {
                    load(source, consumer, panel, dst, &ring.producer_expect(free, bytes));
                }
                consumer += 1;
            }
            state.ring.advance();
        }
        panel += 1;
    }
    Ok(())
}

/// Consumer: adds up one panel over the ranks, in rank order: `own()`, rounded like everyone's, and the peers' next panels in
/// the ring, of which `rows()` rows exist. `who()` is this rank and the number of ranks. The last peer's buffer, if there is a
/// peer, is left at `state`, filled and not freed: the result takes its place.
#[inline(always)]
pub(super) fn sum_over_ranks<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const BUFS: u32>(
    ring: &PanelRing<'_, M, BUFS>,
    state: &mut PipelineState<BUFS>,
    consumer: u32,
    rows: impl Fn() -> u32,
    who: impl Fn() -> (u32, u32),
    own: impl Fn() -> M::Panel,
    sum: &mut M::Panel,
) -> Result<(), Aborted> {
    let m = ring.m;
    let mut src = 0;
    loop {
        let (rank, world) = who();
        if src >= world {
            return Ok(());
        }
        if src == rank {
            m.add_to(sum, &own());
        } else {
            let slot = ring.consumer_wait(*state)?;
            if rows() > 0 {
                m.add_to(sum, &m.load_panel(C::SMEM.panel(consumer, slot.index()), rows()));
            }
            let is_last = src + 1 == world || src + 2 == world && src + 1 == rank;
            if !is_last {
                ring.consumer_release(slot);
                state.advance();
            }
        }
        src += 1;
    }
}

/// Consumer: adds the peers' panels of one own tile to `acc`, in rank order, the own panel rounded like everyone's.
#[inline(always)]
pub fn add_partials<M: Mbarriers + Watch + WarpgroupMma<C>, C: TileConfig, const BUFS: u32>(
    m: &M,
    state: &mut PartialsState<BUFS>,
    consumer: u32,
    extent: TileExtent,
    rank: u32,
    world: u32,
    acc: &M::Acc,
) -> Result<(), Aborted> {
    let ring = partial_ring::<M, C, BUFS>(m, Role::Consumer(consumer), consumer);
    let rows = extent.rows_of(consumer);
    for_each_panel!(extent.panels::<C>(), PANEL => {
        let own = || m.round(m.panel::<PANEL>(acc));
        let who = || (rank, world);
        let mut sum = m.zero_panel();
        sum_over_ranks::<M, C, BUFS>(&ring, &mut state.ring, consumer, || rows, who, own, &mut sum)?;
        if rows > 0 {
            m.store_panel(C::SMEM.panel(consumer, state.ring.index()), &sum);
        }
        state.ring.advance();
        // The storer reads the buffer next, and frees it.
        m.arrive(C::SMEM.result_full(consumer).at(state.result.index()));
        state.result.advance();
    });
    Ok(())
}

/// Storer: takes the reduced panels of one own tile, for each of which the loader brought `loads` (at least 1), and gives
/// each to `store(consumer, panel, source)`.
#[inline(always)]
pub fn store_results<M: Mbarriers + Watch + BulkCopy, C: TileConfig, const BUFS: u32>(
    m: &M,
    state: &mut PartialsState<BUFS>,
    panels: u32,
    loads: u32,
    store: impl Fn(u32, u32, SmemAddr),
) -> Result<(), Aborted> {
    let mut panel = 0;
    while panel < panels {
        // The result lies in the buffer of the panel's last source.
        let at = state.ring.advanced_by(loads - 1);
        let mut consumer = 0;
        while consumer < C::CONSUMERS {
            let (buf, parity) = (state.result.index(), state.result.full_parity());
            let bar = C::SMEM.result_full(consumer).at(buf);
            wait_mbarrier(m, Role::Storer, WaitKind::ResultFull, consumer * PANEL_BUFS + buf, bar, parity)?;
            store(consumer, panel, C::SMEM.panel(consumer, at.index()));
            consumer += 1;
        }
        m.commit_group();
        m.wait_group_read::<0>();
        consumer = 0;
        while consumer < C::CONSUMERS {
            let ring = partial_ring::<M, C, BUFS>(m, Role::Storer, consumer);
            ring.consumer_release_many(ring.consumer_take_over(at), WARPS_PER_WARPGROUP);
            consumer += 1;
        }
        state.ring = at.advanced_by(1);
        state.result.advance();
        panel += 1;
    }
    Ok(())
}
