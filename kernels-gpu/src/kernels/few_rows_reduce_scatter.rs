//! GEMM + ReduceScatter for few rows: a tile holds the rows of every owner, so that each column of B is read by one CTA alone.
//!
//! With a tile of its own for each owner, as in [`super::gemm_reduce_scatter`], every CTA of such a call would read most of its
//! bytes only to multiply them with a few rows. Slots, signals, credits and epochs are the same; what differs:
//!
//! | CTAs | producer | storer | consumers |
//! | --- | --- | --- | --- |
//! | computing | operands of every tile; A's box is cut to the rows of the call | each owner's rows of a tile to its slot, then the signals | multiply |
//! | of the partition, or all when it is empty | | | add the slots of the own rows of every tile |
//!
//! Partials are always added from the slots: own rows may lie anywhere in a tile, where no box of D begins.

use super::Kernel;
use super::gemm_reduce_scatter::GemmReduceScatter;
use super::places::{own_workspace, workspace};
use crate::abi::{EpilogueArgs, GemmReduceScatterArgs, Transport, WaitKind};
use crate::collective::epilogue::{store_panels, write_panels};
use crate::collective::finish::finish_of;
use crate::collective::mainloop::{load_operands, multiply};
use crate::collective::setup::{operand_ring, panel_ring};
use crate::comm::route::owner_at_step;
use crate::comm::signal::{tile_tag, wait_signal};
use crate::comm::workspace::Workspace;
use crate::config::{PANEL_ROWS, ROW_BYTES, SMEM_ALIGN, TileBox, TileConfig};
use crate::layout::slot::{TileExtent, panel_offset};
use crate::machine::{Aborted, PutSignals, ReduceJob, RowsFinish, Signals, ThreadRole, WarpgroupRole, Watch};
use crate::pipeline::state::PipelineState;
use crate::schedule::shared::{SharedTile, SharedTiles};
use crate::shape::{CtaPosition, Rank, Role, SmemAddr, div_ceil, min};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`. Calls have at most `C::TILE_M` rows.
pub struct FewRowsReduceScatter<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

/// Rows of a swizzle's period.
const PERIOD_ROWS: u32 = SMEM_ALIGN / ROW_BYTES;

/// One CTA's view of the call.
pub(super) struct Call<'a, C> {
    pub(super) args: &'a GemmReduceScatterArgs,
    /// What becomes of the sums; none in the kernels without epilogues.
    pub(super) epilogue: Option<&'a EpilogueArgs>,
    at: CtaPosition,
    pub(super) tiles: SharedTiles,
    pub(super) epoch: u32,
    config: core::marker::PhantomData<C>,
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
        Self { epilogue, epoch, ..Self::of_operands(args, at) }
    }

    /// As the producer sees it, which needs no epoch and so touches no memory.
    #[inline(always)]
    pub(super) fn of_operands(args: &'a GemmReduceScatterArgs, at: CtaPosition) -> Self {
        let tiles = SharedTiles { m: args.m, n: args.n, world: args.world, tile_n: C::TILE_N };
        Self { args, epilogue: None, at, tiles, epoch: 0, config: core::marker::PhantomData }
    }

    #[inline(always)]
    pub(super) fn rank(&self) -> Rank {
        Rank(self.args.rank)
    }

    #[inline(always)]
    pub(super) fn of(&self, rank: Rank) -> Workspace {
        workspace::<C>(self.args, rank)
    }

    #[inline(always)]
    pub(super) fn k_tiles(&self) -> u32 {
        div_ceil(self.args.k, C::TILE_K)
    }

    /// A's box: the host cuts the tensor map's in the same way.
    #[inline(always)]
    fn a_box(&self) -> TileBox {
        C::A_BOX.cut_to(self.args.m)
    }

    /// Rows of A and of B that exist in a stage, of consumer `consumer`'s half.
    #[inline(always)]
    pub(super) fn rows_of(&self, consumer: u32) -> [u32; 2] {
        [min(self.a_box().rows.saturating_sub(consumer * PANEL_ROWS), PANEL_ROWS), C::TILE_N]
    }

    #[inline(always)]
    fn compute_ctas(&self) -> u32 {
        self.at.num_ctas - self.args.partition_ctas
    }

    /// This CTA's `nth` tile to compute.
    #[inline(always)]
    pub(super) fn compute_tile(&self, nth: u32) -> Option<SharedTile> {
        if self.at.cta >= self.compute_ctas() {
            return None;
        }
        self.tiles.tile(self.at.cta + nth * self.compute_ctas())
    }

    /// First tile whose own rows this CTA adds, and the distance to the next.
    #[inline(always)]
    fn first_to_reduce(&self) -> Option<(u32, u32)> {
        if self.args.partition_ctas == 0 {
            Some((self.at.cta, self.at.num_ctas))
        } else if self.at.cta >= self.compute_ctas() {
            Some((self.at.cta - self.compute_ctas(), self.args.partition_ctas))
        } else {
            None
        }
    }

    /// The owner of rows at step `step`, if there is one: peers first, each rank in another order.
    #[inline(always)]
    pub(super) fn owner(&self, step: u32) -> Option<Rank> {
        let owner = owner_at_step(self.rank(), self.args.world, step);
        if self.tiles.owns(owner) { Some(owner) } else { None }
    }

    #[inline(always)]
    pub(super) fn produce<M: ThreadRole, const STAGES: u32>(&self, m: &M) -> Result<(), Aborted> {
        let ring = operand_ring::<M, C, STAGES>(m, Role::Producer);
        let mut state = PipelineState::start();
        let (k_tiles, a_box, mut nth) = (self.k_tiles(), self.a_box(), 0);
        while let Some(tile) = self.compute_tile(nth) {
            m.wait_for_previous();
            load_operands::<M, C, STAGES>(&ring, &mut state, 0, tile.col, [0, k_tiles], [a_box, C::B_BOX])?;
            nth += 1;
        }
        m.let_next_start();
        Ok(())
    }

    /// A mover's part of the call.
    #[inline(always)]
    pub(super) fn move_as<M: ThreadRole, const STAGES: u32, const BUFS: u32>(
        m: &M,
        args: &'a GemmReduceScatterArgs,
        at: CtaPosition,
        role: Role,
    ) -> Result<(), Aborted> {
        match role {
            Role::Producer => Self::of_operands(args, at).produce::<M, STAGES>(m),
            // What becomes of the sums is the consumers' affair.
            Role::Storer => Self::new(m, args, None, at).store::<M, BUFS>(m),
            Role::Loader | Role::Consumer(_) => Ok(()),
        }
    }

    #[inline(always)]
    fn store<M: ThreadRole, const BUFS: u32>(&self, m: &M) -> Result<(), Aborted> {
        let mut state = PipelineState::<BUFS>::start();
        let mut nth = 0;
        while let Some(tile) = self.compute_tile(nth) {
            if nth == 0 {
                self.wait_credits(m, Role::Storer)?;
                // The owners' reads come before the copy engine's next writes.
                m.fence_proxy_async_global();
            }
            let panels = TileExtent { rows: self.args.m, cols: tile.cols }.panels::<C>();
            store_panels::<M, C, _>(m, &mut state, panels, |consumer, panel, src| {
                self.send_panel(m, tile.index, consumer, panel, src);
            })?;
            m.wait_group_complete::<0>();
            m.fence_proxy_async_global();
            m.fence_sys();
            let mut step = 0;
            while step < self.args.world {
                if let Some(owner) = self.owner(step) {
                    m.store_fenced_sys(self.of(owner).signal(self.rank(), tile.index), self.epoch);
                }
                step += 1;
            }
            nth += 1;
        }
        Ok(())
    }

    /// `role`: waits until every owner has consumed what this rank sent it two epochs ago.
    #[inline(always)]
    pub(super) fn wait_credits<M: Signals + Watch>(&self, m: &M, role: Role) -> Result<(), Aborted> {
        let awaited = self.epoch.wrapping_sub(2);
        let mut step = 0;
        while step + 1 < self.args.world {
            if let Some(owner) = self.owner(step) {
                let credit = self.of(self.rank()).credit(owner);
                wait_signal(m, role, WaitKind::Credit, owner.0, credit, awaited)?;
            }
            step += 1;
        }
        Ok(())
    }

    /// Storer: stores each owner's rows of a panel at `src` into its slot.
    #[inline(always)]
    fn send_panel<M: ThreadRole>(&self, m: &M, tile: u32, consumer: u32, panel: u32, src: SmemAddr) {
        let by_stores = self.args.transport == Transport::PushStores as u32;
        let mut step = 0;
        while step < self.args.world {
            if let Some(owner) = self.owner(step) {
                let segment = self.tiles.segment(owner, consumer);
                let (off, bytes) = (segment.first * ROW_BYTES, segment.rows * ROW_BYTES);
                let slot = self.of(owner).slot(self.epoch, self.rank(), tile);
                let to = slot.plus((panel_offset::<C>(consumer, panel) + off) as u64);
                if bytes > 0 && by_stores && owner != self.rank() {
                    m.push_bytes(to, src.plus(off), bytes);
                } else if bytes > 0 {
                    m.store_bytes(to, src.plus(off), bytes);
                }
            }
            step += 1;
        }
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
        let rows = self.rows_of(consumer);
        let mut nth = 0;
        while let Some(tile) = self.compute_tile(nth) {
            let mut acc = m.zero_acc();
            multiply::<M, C, STAGES>(&operands, &mut operand_state, consumer, rows, self.k_tiles(), &mut acc)?;
            let extent = TileExtent { rows: self.args.m, cols: tile.cols };
            write_panels::<M, C, _>(&panels, &mut panel_state, consumer, extent.panels::<C>(), &acc)?;
            nth += 1;
        }
        self.reduce(m, consumer)
    }

    /// Consumer: adds up the own rows in its half of tiles from their slots.
    #[inline(always)]
    fn reduce<M: WarpgroupRole<C>>(&self, m: &M, consumer: u32) -> Result<(), Aborted> {
        let Some((mut index, distance)) = self.first_to_reduce() else { return Ok(()) };
        let own = own_workspace::<C>(self.args);
        let segment = self.tiles.segment(self.rank(), consumer);
        if segment.rows == 0 {
            return Ok(());
        }
        // The job begins at a period of the swizzle, and skips the rows before the own ones.
        let skip = segment.first % PERIOD_ROWS;
        let rows_off = (segment.first - skip) * ROW_BYTES;
        while let Some(tile) = self.tiles.tile(index) {
            let mut sender = 0;
            while sender < self.args.world {
                let signal = own.signal(Rank(sender), index);
                let tag = tile_tag(sender, index);
                wait_signal(m, Role::Consumer(consumer), WaitKind::Signal, tag, signal, self.epoch)?;
                sender += 1;
            }
            let slot = own.slot(self.epoch, Rank(0), index);
            let col_bytes = tile.col as u64 * C::OUT.bytes() as u64;
            m.reduce(&ReduceJob {
                slot: slot.plus((panel_offset::<C>(consumer, 0) + rows_off) as u64),
                slot_stride: own.slot_stride(),
                slots: self.args.world,
                skip,
                dst: self.args.d.plus(segment.chunk_row as u64 * self.args.d_stride + col_bytes),
                dst_stride: self.args.d_stride,
                rows: skip + segment.rows,
                cols: tile.cols,
                finish: self.epilogue.map(|epilogue| RowsFinish {
                    how: finish_of::<M, C>(m, epilogue, tile.col, tile.cols),
                    c: epilogue.c.plus(segment.chunk_row as u64 * epilogue.c_stride + col_bytes),
                    c_stride: epilogue.c_stride,
                }),
            });
            index += distance;
        }
        Ok(())
    }
}

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for FewRowsReduceScatter<C, STAGES, BUFS> {
    type Args = GemmReduceScatterArgs;
    type Config = C;

    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        Call::<C>::move_as::<M, STAGES, BUFS>(m, args, at, role)
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &Self::Args, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        Call::<C>::new(m, args, None, at).consume::<M, STAGES, BUFS>(m, consumer)
    }

    /// As in [`GemmReduceScatter`]: credits, and the next epoch.
    #[inline(always)]
    fn leave<M: PutSignals>(m: &M, args: &Self::Args, at: CtaPosition) {
        GemmReduceScatter::<C, STAGES, BUFS>::leave(m, args, at);
    }
}
