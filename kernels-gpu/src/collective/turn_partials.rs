//! Panels of consumers that take turns, over ranks: what [`super::partials`] is for consumers that multiply together,
//! for tiles of any owner in any order.
//!
//! Each tile is one consumer's, both halves of it, and goes through that consumer's buffers. The loader fills a buffer
//! with a peer's panel, or hands it on empty where there is none to add: without peers, and for other owners. The
//! consumer leaves its result in the last of them, and the storer frees it. What one consumer adds, the other's
//! multiplications hide.

use super::epilogue::for_each_panel;
use super::partials::sum_over_ranks;
use super::ping_pong::HALVES;
use super::setup::partial_ring;
use crate::abi::WaitKind;
use crate::config::{PANEL_BUFS, PANEL_BYTES, ROW_BYTES, TileConfig};
use crate::layout::slot::TileExtent;
use crate::machine::{Aborted, BulkCopy, Mbarriers, Settle, ThreadRole, WarpgroupMma, Watch};
use crate::pipeline::state::PipelineState;
use crate::pipeline::wait::wait_mbarrier;
use crate::shape::{GlobalAddr, MAX_WORLD, Role, SmemAddr, WARPS_PER_WARPGROUP, div_rem, max};

/// A turn of the CTA, as loader and storer count the uses of both consumers' buffers: in one register. Even turns are
/// consumer 0's.
#[derive(Clone, Copy, Debug)]
pub struct TurnUses(u32);

impl TurnUses {
    /// States repeat after two laps of the ring.
    const LAPS: u32 = 2 * PANEL_BUFS;

    /// The first turn.
    #[inline(always)]
    pub const fn start() -> Self {
        Self(0)
    }

    /// The next turn, after one at a tile of so many loads a panel.
    #[inline(always)]
    pub const fn next<C: TileConfig>(self, loads: u32) -> Self {
        let uses = div_rem(self.uses_before() + HALVES * C::PANELS * loads, Self::LAPS).1;
        let of_the_other = div_rem(self.0 / Self::LAPS, Self::LAPS).1;
        Self(((self.turn() + 1) * Self::LAPS + uses) * Self::LAPS + of_the_other)
    }

    /// Among all turns of the CTA.
    #[inline(always)]
    pub const fn turn(self) -> u32 {
        self.0 / (Self::LAPS * Self::LAPS)
    }

    /// Whose turn it is.
    #[inline(always)]
    pub const fn consumer(self) -> u32 {
        self.turn() % 2
    }

    /// Uses of its consumer's buffers before, but for whole laps.
    #[inline(always)]
    const fn uses_before(self) -> u32 {
        self.0 % Self::LAPS
    }

    /// Results of its consumer before, but for whole laps.
    #[inline(always)]
    const fn results_before<C: TileConfig>(self) -> u32 {
        self.turn() / 2 % Self::LAPS * HALVES * C::PANELS
    }
}

/// What a role keeps of its turn's tile, in one register: how much exists, whether it is an own one, and who adds to
/// it.
#[derive(Clone, Copy, Debug)]
pub struct TurnTile(u32);

impl TurnTile {
    /// A tile of which `extent` exists, and to which `ranks` ranks add in rank order, this one being `rank`; of another
    /// owner where `ranks` is `None`: then only this rank adds.
    #[inline(always)]
    pub const fn new<C: TileConfig>(extent: TileExtent, rank: u32, ranks: Option<u32>) -> Self {
        const { assert!(MAX_WORLD <= 8, "three bits for a rank and four for their number") };
        let exists = extent.rows * (C::PANELS + 1) + extent.panels::<C>();
        match ranks {
            Some(ranks) => Self(((exists * 16 + ranks) * 8 + rank) * 2 + 1),
            None => Self((exists * 16 + 1) * 16),
        }
    }

    /// The same, found by now: see [`Settle::settle`].
    #[inline(always)]
    pub fn settled<M: Settle>(self, m: &M) -> Self {
        Self(m.settle(self.0))
    }

    /// Whether it is a tile of this rank's own.
    #[inline(always)]
    pub const fn is_own(self) -> bool {
        self.0 % 2 == 1
    }

    /// This rank and the number of ranks among those that add to it.
    #[inline(always)]
    pub const fn who(self) -> (u32, u32) {
        (self.0 / 2 % 8, self.0 / 16 % 16)
    }

    /// Panels that the loader brings for one panel of it: one for each peer; an empty one where there is none, since
    /// the result needs a buffer.
    #[inline(always)]
    pub const fn loads(self) -> u32 {
        max(self.who().1 - 1, 1)
    }

    /// Bytes of the existing rows of panel `panel` of the tile, counted through both halves.
    #[inline(always)]
    pub const fn bytes<C: TileConfig>(self, panel: u32) -> u32 {
        let (rows, panels) = div_rem(self.0 / 256, C::PANELS + 1);
        let (half, at) = div_rem(panel, C::PANELS);
        if at < panels { TileExtent { rows, cols: 0 }.panel_bytes(half) } else { 0 }
    }
}

/// Loader: brings the peers' panels of a tile, in rank order, or empty buffers. `slot(peer)` is where that peer's tile
/// lies.
#[inline(always)]
pub fn load_partials_of<M: ThreadRole, C: TileConfig>(
    m: &M,
    at: TurnUses,
    tile: TurnTile,
    slot: impl Fn(u32) -> GlobalAddr,
) -> Result<(), Aborted> {
    let ring = partial_ring::<M, C, PANEL_BUFS>(m, Role::Loader, at.consumer());
    let mut panel = 0;
    while panel < HALVES * C::PANELS {
        let mut peer = 0;
        loop {
            let tile = tile.settled(m);
            let (rank, ranks) = tile.who();
            if peer >= ranks {
                break;
            }
            if peer != rank || ranks == 1 {
                // Found from what is kept anyway: a state would be two registers more.
                let uses = at.uses_before() + panel * tile.loads() + peer - (peer > rank) as u32;
                let free = ring.producer_acquire(PipelineState::start().advanced_by(uses))?;
                let bytes = tile.settled(m).bytes::<C>(panel);
                if bytes == 0 || peer == tile.who().0 {
                    ring.producer_commit(free);
                } else {
                    let dst = C::SMEM.panel(at.consumer(), free.index());
                    let filling = ring.producer_expect(free, bytes);
                    m.load_bytes(dst, slot(peer).plus((panel * PANEL_BYTES) as u64), bytes, filling.full());
                }
            }
            peer += 1;
        }
        panel += 1;
    }
    Ok(())
}

/// Consumer: adds the peers' panels of one half of `tile` to `own`, in rank order, and hands the sums to the storer. It
/// is the consumer's half number `nth_half` of all its tiles', after `uses` of its buffers.
#[inline(always)]
pub fn add_partials_of_half<M: Mbarriers + Watch + Settle + WarpgroupMma<C>, C: TileConfig>(
    m: &M,
    uses: u32,
    consumer: u32,
    nth_half: u32,
    tile: TurnTile,
    own: &M::Rounded,
) -> Result<(), Aborted> {
    let ring = partial_ring::<M, C, PANEL_BUFS>(m, Role::Consumer(consumer), consumer);
    let mut state = PipelineState::start().advanced_by(uses);
    for_each_panel!(C::PANELS, PANEL => {
        let who = || tile.settled(m).who();
        let rows = || tile.settled(m).bytes::<C>(nth_half % HALVES * C::PANELS + PANEL) / ROW_BYTES;
        if who().1 == 1 {
            // Nobody adds to it here.
            let _freed_by_the_storer = ring.consumer_wait(state)?;
            if rows() > 0 {
                m.store_rounded::<PANEL>(C::SMEM.panel(consumer, state.index()), own);
            }
        } else {
            let own = || m.rounded_panel::<PANEL>(own);
            let mut sum = m.zero_panel();
            sum_over_ranks::<M, C, PANEL_BUFS>(&ring, &mut state, consumer, &rows, who, own, &mut sum)?;
            if rows() > 0 {
                m.store_panel(C::SMEM.panel(consumer, state.index()), &sum);
            }
        }
        state.advance();
        // The storer reads the buffer next, and frees it.
        m.arrive(C::SMEM.result_full(consumer).at((nth_half * C::PANELS + PANEL) % PANEL_BUFS));
    });
    Ok(())
}

/// Storer: takes the results of `tile` and gives each to `store(panel, source)`, which issues bulk stores or none;
/// panels are counted through both halves. Every source has been read when it returns.
#[inline(always)]
pub fn store_results_of<M: Mbarriers + Watch + Settle + BulkCopy, C: TileConfig>(
    m: &M,
    at: TurnUses,
    tile: TurnTile,
    store: impl Fn(u32, SmemAddr),
) -> Result<(), Aborted> {
    let consumer = at.consumer();
    let ring = partial_ring::<M, C, PANEL_BUFS>(m, Role::Storer, consumer);
    let mut panel = 0;
    while panel < HALVES * C::PANELS {
        let result = PipelineState::<PANEL_BUFS>::start().advanced_by(at.results_before::<C>() + panel);
        let (buf, parity) = (result.index(), result.full_parity());
        let bar = C::SMEM.result_full(consumer).at(buf);
        wait_mbarrier(m, Role::Storer, WaitKind::ResultFull, consumer * PANEL_BUFS + buf, bar, parity)?;
        // The result lies in the buffer of the panel's last source.
        let last = PipelineState::start().advanced_by(at.uses_before() + (panel + 1) * tile.settled(m).loads() - 1);
        store(panel, C::SMEM.panel(consumer, last.index()));
        m.commit_group();
        // One at a time: a consumer has the time of the other's tile for this, and the storer few registers.
        m.wait_group_read::<0>();
        ring.consumer_release_many(ring.consumer_take_over(last), WARPS_PER_WARPGROUP);
        panel += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type C = crate::config::Tile128x192;

    #[test]
    fn a_tile_in_one_register_is_what_it_was() {
        for rows in [0, 1, 63, 64, 65, 127, 128] {
            for cols in [0, 1, 63, 64, 65, 128, 129, 191, 192] {
                let extent = TileExtent { rows, cols };
                let all = (1..=8).flat_map(|ranks| (0..ranks).map(move |rank| (rank, Some(ranks))));
                for (rank, ranks) in all.chain([(5, None)]) {
                    let tile = TurnTile::new::<C>(extent, rank, ranks);
                    assert_eq!(tile.is_own(), ranks.is_some());
                    assert_eq!(tile.who(), ranks.map_or((0, 1), |ranks| (rank, ranks)));
                    assert_eq!(tile.loads(), ranks.map_or(1, |ranks| (ranks - 1).max(1)));
                    for (half, panel) in (0..HALVES).flat_map(|half| (0..C::PANELS).map(move |panel| (half, panel))) {
                        let bytes = if panel < extent.panels::<C>() { extent.panel_bytes(half) } else { 0 };
                        assert_eq!(tile.bytes::<C>(half * C::PANELS + panel), bytes, "{extent:?}, {half}, {panel}");
                    }
                }
            }
        }
    }

    #[test]
    fn turns_count_each_consumers_uses_and_results() {
        let state = |uses| PipelineState::<PANEL_BUFS>::start().advanced_by(uses);
        let (mut used, mut done, mut at) = ([0; 2], [0; 2], TurnUses::start());
        for turn in 0..300 {
            let consumer = at.consumer() as usize;
            assert_eq!((at.turn(), at.turn() % 2), (turn, consumer as u32));
            assert_eq!(state(used[consumer]), state(at.uses_before()), "{at:?}");
            assert_eq!(state(done[consumer]), state(at.results_before::<C>()), "{at:?}");
            // As many loads as one likes, in any order.
            let loads = turn * turn % 7 + 1;
            used[consumer] += HALVES * C::PANELS * loads;
            done[consumer] += HALVES * C::PANELS;
            at = at.next::<C>(loads);
        }
    }
}
