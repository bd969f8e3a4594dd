//! GEMM + ReduceScatter: rank r multiplies its K shard for all rows, and ends with the sum over ranks of its own rows.
//!
//! | CTAs | producer | storer | loader | consumers |
//! | --- | --- | --- | --- | --- |
//! | computing | operands of every tile | panels to the owner's slot (*push*), to staging (*staged*), to D | peers' panels of own tiles (*epilogue*) | multiply; add peers' panels of own tiles (*epilogue*) |
//! | of the partition | staged tiles in (*staged*) | staged tiles out (*staged*) | | add the slots of own tiles (*partition*) |
//!
//! With an empty partition every CTA takes up the partition's work after its last tile. Compute waits only for credits
//! of finished epochs, carrying only for computation, and adding only for both: nothing waits in a circle.

use super::Kernel;
use super::places::{own_workspace, tiles, workspace};
use crate::abi::{EpilogueArgs, GemmReduceScatterArgs, Operand, Placement, Transport, WaitKind};
use crate::collective::carry::{deliver, pick_up};
use crate::collective::epilogue::{scale, scale_factor, store_panels, write_panels};
use crate::collective::finish::{finish_of, finish_panels, loads_per_panel};
use crate::collective::mainloop::{load_operands, multiply};
use crate::collective::partials::{PartialsState, add_partials, store_results};
use crate::collective::setup::{operand_ring, panel_ring, stage_readers};
use crate::comm::signal::{put_local_signal, put_signal, tile_tag, wait_local_signal, wait_signal};
use crate::comm::workspace::Workspace;
use crate::config::{PANEL_ROWS, TileConfig};
use crate::layout::slot::panel_offset;
use crate::machine::{Aborted, PutSignals, ReduceJob, RowsFinish, Signals, ThreadRole, WarpgroupRole};
use crate::pipeline::ring::ReadySlot;
use crate::pipeline::state::PipelineState;
use crate::schedule::chunked::{ChunkTile, ChunkedTiles, TileWalk};
use crate::shape::{CtaPosition, GlobalAddr, Rank, Role, SmemAddr, div_ceil};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`.
pub struct GemmReduceScatter<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

/// The same by a configuration with few panel buffers and a stage more, for calls in which no CTA has a second tile: nothing is
/// held up by panels that wait for the link.
pub type FewTilesReduceScatter<C, const STAGES: u32, const BUFS: u32> = GemmReduceScatter<C, STAGES, BUFS>;

/// One CTA's view of the call.
pub(super) struct Call<'a, C> {
    pub(super) args: &'a GemmReduceScatterArgs,
    /// What becomes of the sums; none in the kernel without epilogues.
    pub(super) epilogue: Option<&'a EpilogueArgs>,
    at: CtaPosition,
    tiles: ChunkedTiles,
    pub(super) epoch: u32,
    config: core::marker::PhantomData<C>,
}

/// Where the storer takes a computed tile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// D: the tile is final.
    Result,
    /// The owner's slot, own or a peer's.
    Slot,
    /// This rank's staging.
    Staging,
}

impl<'a, C: TileConfig> Call<'a, C> {
    #[inline(always)]
    pub(super) fn new<M: Signals>(
        m: &M,
        args: &'a GemmReduceScatterArgs,
        epilogue: Option<&'a EpilogueArgs>,
        at: CtaPosition,
    ) -> Self {
        let epoch = m.load_settled_gpu(own_workspace::<C>(args).epoch());
        Self { args, epilogue, at, tiles: tiles::<C>(args), epoch, config: core::marker::PhantomData }
    }

    #[inline(always)]
    fn rank(&self) -> Rank {
        self.tiles.rank
    }

    #[inline(always)]
    pub(super) fn own(&self) -> Workspace {
        own_workspace::<C>(self.args)
    }

    #[inline(always)]
    fn of(&self, rank: Rank) -> Workspace {
        workspace::<C>(self.args, rank)
    }

    #[inline(always)]
    fn k_tiles(&self) -> u32 {
        div_ceil(self.args.k, C::TILE_K)
    }

    #[inline(always)]
    fn is_staged(&self) -> bool {
        self.args.transport == Transport::Staged as u32
    }

    /// Whether partials are added where `placement` says; in the epilogue, one rank has none to add. A chunk with a lead is
    /// always added from its slots: the copy engine cannot store a box that begins before D.
    #[inline(always)]
    pub(super) fn reduces_in(&self, placement: Placement) -> bool {
        let has_lead = C::ROW_ALIGN > 1 && self.tiles.own_lead() > 0;
        let wanted = if has_lead { Placement::Partition as u32 } else { self.args.placement };
        wanted == placement as u32
            && (self.args.world > 1 || self.epilogue.is_some() || placement == Placement::Partition)
    }

    #[inline(always)]
    fn compute_ctas(&self) -> u32 {
        self.at.num_ctas - self.args.partition_ctas
    }

    /// This CTA's `nth` tile to compute.
    #[inline(always)]
    pub(super) fn compute_tile(&self, nth: u32) -> Option<ChunkTile> {
        if self.at.cta >= self.compute_ctas() {
            return None;
        }
        self.tiles.nth(self.at.cta + nth * self.compute_ctas(), self.args.world)
    }

    /// Whether peers' partials are added to `tile` while the consumers hold it. Such tiles come after all others.
    #[inline(always)]
    fn is_reduced_here(&self, tile: &ChunkTile) -> bool {
        tile.owner == self.rank() && self.reduces_in(Placement::Epilogue)
    }

    /// This CTA's `nth` tile to compute, if it is handed on as computed.
    #[inline(always)]
    pub(super) fn plain_tile(&self, nth: u32) -> Option<ChunkTile> {
        match self.compute_tile(nth) {
            Some(tile) if !self.is_reduced_here(&tile) => Some(tile),
            _ => None,
        }
    }

    /// This CTA's index in the partition and the partition's size, where it belongs to it.
    #[inline(always)]
    fn partition(&self) -> Option<(u32, u32)> {
        if self.args.partition_ctas == 0 {
            Some((self.at.cta, self.at.num_ctas))
        } else if self.at.cta >= self.compute_ctas() {
            Some((self.at.cta - self.compute_ctas(), self.args.partition_ctas))
        } else {
            None
        }
    }

    /// The `nth` tile this CTA carries: tiles of other owners, in the order in which they are computed.
    #[inline(always)]
    fn carried_tile(&self, nth: u32) -> Option<ChunkTile> {
        let (idx, size) = self.partition()?;
        if self.is_staged() { self.tiles.nth(idx + nth * size, self.args.world - 1) } else { None }
    }

    #[inline(always)]
    fn destination(&self, tile: &ChunkTile) -> Destination {
        if tile.owner == self.rank() {
            if self.reduces_in(Placement::Partition) { Destination::Slot } else { Destination::Result }
        } else if self.is_staged() {
            Destination::Staging
        } else {
            Destination::Slot
        }
    }

    /// Where a tile that does not go to D is stored, and the word that says that it is there.
    #[inline(always)]
    fn landing(&self, destination: Destination, tile: &ChunkTile) -> (GlobalAddr, GlobalAddr) {
        if destination == Destination::Staging {
            let own = self.own();
            (own.staging(tile.owner, tile.index), own.staged(tile.owner, tile.index))
        } else {
            let at = self.of(tile.owner);
            (at.slot(self.epoch, self.rank(), tile.index), at.signal(self.rank(), tile.index))
        }
    }

    /// Waits until `owner` has consumed what this rank sent it two epochs ago: the slots are free.
    #[inline(always)]
    fn wait_credit<M: ThreadRole>(&self, m: &M, owner: Rank) -> Result<(), Aborted> {
        if owner == self.rank() {
            return Ok(());
        }
        let credit = self.own().credit(owner);
        wait_signal(m, Role::Storer, WaitKind::Credit, owner.0, credit, self.epoch.wrapping_sub(2))?;
        // The owner's reads come before the copy engine's next writes.
        m.fence_proxy_async_global();
        Ok(())
    }

    /// A mover's part of the call.
    #[inline(always)]
    pub(super) fn move_as<M: ThreadRole, const STAGES: u32, const BUFS: u32>(
        m: &M,
        args: &'a GemmReduceScatterArgs,
        epilogue: Option<&'a EpilogueArgs>,
        at: CtaPosition,
        role: Role,
    ) -> Result<(), Aborted> {
        // The epoch is memory too.
        if let Role::Producer = role {
            m.wait_for_previous();
        }
        let call = Self::new(m, args, epilogue, at);
        match role {
            Role::Producer => call.produce::<M, STAGES>(m),
            Role::Storer => call.store::<M, STAGES, BUFS>(m),
            Role::Loader => call.load::<M, BUFS>(m),
            Role::Consumer(_) => Ok(()),
        }
    }

    #[inline(always)]
    fn produce<M: ThreadRole, const STAGES: u32>(&self, m: &M) -> Result<(), Aborted> {
        let ring = operand_ring::<M, C, STAGES>(m, Role::Producer);
        let mut state = PipelineState::start();
        let k_tiles = self.k_tiles();
        if self.at.cta < self.compute_ctas() {
            let mut walk = TileWalk::new(self.tiles, self.at.cta, self.compute_ctas());
            while let Some((row, col)) = walk.next() {
                load_operands::<M, C, STAGES>(&ring, &mut state, row, col, [0, k_tiles], [C::A_BOX, C::B_BOX])?;
            }
        }
        let mut nth = 0;
        while let Some(tile) = self.carried_tile(nth) {
            let own = self.own();
            let (staged, tag) = (own.staged(tile.owner, tile.index), tile_tag(tile.owner.0, tile.index));
            wait_local_signal(m, Role::Producer, WaitKind::Staged, tag, staged, self.epoch)?;
            m.fence_proxy_async_global();
            let src = own.staging(tile.owner, tile.index);
            pick_up::<M, C, STAGES>(&ring, &mut state, tile.extent, src)?;
            nth += 1;
        }
        m.let_next_start();
        Ok(())
    }

    /// Storer: writes panel `panel` of consumer `consumer` to D.
    #[inline(always)]
    fn store_to_d<M: ThreadRole>(&self, m: &M, tile: &ChunkTile, consumer: u32, panel: u32, src: SmemAddr) {
        if tile.extent.rows_of(consumer) > 0 {
            let row = tile.chunk_row + consumer * PANEL_ROWS;
            m.store_box(Operand::D, row, tile.col + panel * C::PANEL_COLS, src);
        }
    }

    #[inline(always)]
    fn store<M: ThreadRole, const STAGES: u32, const BUFS: u32>(&self, m: &M) -> Result<(), Aborted> {
        let nth = self.store_plain::<M, BUFS>(m)?;
        let mut state = PartialsState::<BUFS>::start();
        let mut more = 0;
        while let Some(tile) = self.compute_tile(nth + more) {
            let panels = tile.extent.panels::<C>();
            let loads = loads_per_panel(self.args.world - 1, self.epilogue);
            store_results::<M, C, _>(m, &mut state, panels, loads, |consumer, panel, src| {
                self.store_to_d(m, &tile, consumer, panel, src);
            })?;
            more += 1;
        }
        self.deliver_all::<M, STAGES>(m, PipelineState::start().advanced_by((nth + more) * self.k_tiles()))?;
        m.wait_group_complete::<0>();
        Ok(())
    }

    /// Storer: takes tiles that are not reduced here to where they go; returns how many.
    #[inline(always)]
    fn store_plain<M: ThreadRole, const BUFS: u32>(&self, m: &M) -> Result<u32, Aborted> {
        let mut state = PipelineState::<BUFS>::start();
        let (mut nth, mut credited) = (0, self.rank());
        let by_stores = self.args.transport == Transport::PushStores as u32;
        while let Some(tile) = self.plain_tile(nth) {
            let destination = self.destination(&tile);
            if destination == Destination::Slot && tile.owner != credited {
                self.wait_credit(m, tile.owner)?;
                credited = tile.owner;
            }
            let (tile_addr, signal) = self.landing(destination, &tile);
            let goes_out = destination == Destination::Slot && tile.owner != self.rank();
            let pace_ns = if goes_out && self.compute_tile(nth + 1).is_some() { self.args.pace_ns } else { 0 };
            store_panels::<M, C, _>(m, &mut state, tile.extent.panels::<C>(), |consumer, panel, src| {
                let bytes = tile.extent.panel_bytes(consumer);
                if destination == Destination::Result {
                    self.store_to_d(m, &tile, consumer, panel, src);
                } else if bytes > 0 {
                    let to = tile_addr.plus(panel_offset::<C>(consumer, panel) as u64);
                    if goes_out && by_stores {
                        m.push_bytes(to, src, bytes);
                    } else {
                        m.store_bytes(to, src, bytes);
                    }
                    if pace_ns > 0 {
                        m.linger(pace_ns);
                    }
                }
            })?;
            match destination {
                Destination::Slot => put_signal::<0, M>(m, signal, self.epoch),
                Destination::Staging => put_local_signal::<0, M>(m, signal, self.epoch),
                Destination::Result => {}
            }
            nth += 1;
        }
        Ok(nth)
    }

    /// Storer: carries staged tiles to their owners. A tile's signal goes out once the next tile is on its way, so that
    /// two are always in flight.
    #[inline(always)]
    fn deliver_all<M: ThreadRole, const STAGES: u32>(
        &self,
        m: &M,
        mut state: PipelineState<STAGES>,
    ) -> Result<(), Aborted> {
        let ring = operand_ring::<M, C, STAGES>(m, Role::Storer);
        let (mut nth, mut credited) = (0, self.rank());
        let mut reading: Option<ReadySlot> = None;
        let mut unsignalled: Option<GlobalAddr> = None;
        while let Some(tile) = self.carried_tile(nth) {
            if tile.owner != credited {
                self.wait_credit(m, tile.owner)?;
                credited = tile.owner;
            }
            let (slot, signal) = self.landing(Destination::Slot, &tile);
            let loads = deliver::<M, C, STAGES>(&ring, &mut state, &mut reading, tile.extent, slot)?;
            if let Some(signal) = unsignalled.replace(signal) {
                // All but this tile's groups, of which there are at most four.
                match loads {
                    1 => put_signal::<1, M>(m, signal, self.epoch),
                    2 => put_signal::<2, M>(m, signal, self.epoch),
                    3 => put_signal::<3, M>(m, signal, self.epoch),
                    _ => put_signal::<4, M>(m, signal, self.epoch),
                }
            }
            nth += 1;
        }
        if let Some(signal) = unsignalled {
            put_signal::<0, M>(m, signal, self.epoch);
        }
        if let Some(read) = reading {
            ring.consumer_release_many(read, stage_readers::<C>());
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn consume<M: WarpgroupRole<C>, const STAGES: u32, const BUFS: u32>(
        &self,
        m: &M,
        consumer: u32,
    ) -> Result<(), Aborted> {
        let role = Role::Consumer(consumer);
        let operands = operand_ring::<M, C, STAGES>(m, role);
        let panels = panel_ring::<M, C, BUFS>(m, role, consumer);
        let (mut operand_state, mut panel_state) = (PipelineState::start(), PipelineState::start());
        let (rows, factor) = ([PANEL_ROWS, C::TILE_N], scale_factor::<M, C>(m, &self.args.scales));
        let mut nth = 0;
        while let Some(tile) = self.plain_tile(nth) {
            let mut acc = m.zero_acc();
            multiply::<M, C, STAGES>(&operands, &mut operand_state, consumer, rows, self.k_tiles(), &mut acc)?;
            scale::<M, C>(m, &mut acc, factor);
            write_panels::<M, C, _>(&panels, &mut panel_state, consumer, tile.extent.panels::<C>(), &acc)?;
            nth += 1;
        }
        m.arrive(C::SMEM.handover(consumer));
        let mut partials = PartialsState::<BUFS>::start();
        while let Some(tile) = self.compute_tile(nth) {
            let mut acc = m.zero_acc();
            multiply::<M, C, STAGES>(&operands, &mut operand_state, consumer, rows, self.k_tiles(), &mut acc)?;
            scale::<M, C>(m, &mut acc, factor);
            let (rank, world) = (self.args.rank, self.args.world);
            match self.epilogue {
                None => add_partials::<M, C, _>(m, &mut partials, consumer, tile.extent, rank, world, &acc)?,
                Some(epilogue) => {
                    let (peers, col) = (Some((rank, world)), tile.col);
                    finish_panels::<M, C, _>(m, &mut partials, consumer, col, tile.extent, peers, epilogue, &acc)?;
                }
            }
            nth += 1;
        }
        self.reduce(m, consumer)
    }

    /// Consumer: adds up the own chunk's tiles from their slots.
    #[inline(always)]
    fn reduce<M: WarpgroupRole<C>>(&self, m: &M, consumer: u32) -> Result<(), Aborted> {
        let Some((mut index, step)) = self.partition() else { return Ok(()) };
        if !self.reduces_in(Placement::Partition) {
            return Ok(());
        }
        let own = self.own();
        while index < self.tiles.own_tiles() {
            let tile = self.tiles.tile_of(self.rank(), index);
            let rows = tile.extent.rows_of(consumer);
            if rows > 0 {
                let mut sender = 0;
                while sender < self.args.world {
                    let signal = own.signal(Rank(sender), index);
                    let tag = tile_tag(sender, index);
                    wait_signal(m, Role::Consumer(consumer), WaitKind::Signal, tag, signal, self.epoch)?;
                    sender += 1;
                }
                let skip = tile.lead.saturating_sub(consumer * PANEL_ROWS);
                let row = tile.chunk_row.wrapping_add(consumer * PANEL_ROWS + skip) as u64;
                let col_bytes = tile.col as u64 * C::OUT.bytes() as u64;
                m.reduce(&ReduceJob {
                    slot: own.slot(self.epoch, Rank(0), index).plus(panel_offset::<C>(consumer, 0) as u64),
                    slot_stride: own.slot_stride(),
                    slots: self.args.world,
                    skip,
                    dst: self.args.d.plus(row * self.args.d_stride + col_bytes),
                    dst_stride: self.args.d_stride,
                    rows,
                    cols: tile.extent.cols,
                    finish: self.epilogue.map(|epilogue| RowsFinish {
                        how: finish_of::<M, C>(m, epilogue, tile.col, tile.extent.cols),
                        c: epilogue.c.plus(row * epilogue.c_stride + col_bytes),
                        c_stride: epilogue.c_stride,
                    }),
                });
            }
            index += step;
        }
        Ok(())
    }
}

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for GemmReduceScatter<C, STAGES, BUFS> {
    type Args = GemmReduceScatterArgs;
    type Config = C;

    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        Call::<C>::move_as::<M, STAGES, BUFS>(m, args, None, at, role)
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &Self::Args, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        Call::<C>::new(m, args, None, at).consume::<M, STAGES, BUFS>(m, consumer)
    }

    /// The last CTA to leave returns credits to the senders and advances the epoch. After an abort it does neither: the
    /// words stay as they are until the host recovers them.
    #[inline(always)]
    fn leave<M: PutSignals>(m: &M, args: &Self::Args, at: CtaPosition) {
        let (rank, own) = (Rank(args.rank), own_workspace::<C>(args));
        let epoch = m.load_settled_gpu(own.epoch());
        let left_before = m.fetch_add_acq_rel_gpu(own.exit_count(), 1);
        if left_before + 1 != at.num_ctas {
            return;
        }
        // On its way during the fence.
        let aborted = m.load_relaxed_sys(own.abort());
        m.fence_sys();
        if aborted != 0 {
            // Whoever raised it may have left no record: the host must hear of it all the same.
            m.store_release_sys(args.watchdog.aborted(), 1);
            return;
        }
        let mut sender = 0;
        while sender < args.world {
            if sender != args.rank {
                m.store_fenced_sys(workspace::<C>(args, Rank(sender)).credit(rank), epoch);
            }
            sender += 1;
        }
        m.store_settled_gpu(own.exit_count(), 0);
        m.store_settled_gpu(own.epoch(), epoch.wrapping_add(1));
    }
}
