//! GEMM + ReduceScatter for few rows whose sums never touch shared memory: a consumer stores what others own straight from its
//! registers to their memory, as flagged words ([`crate::layout::flagged`]), and the same thread of the owner's consumer takes
//! them up. No panel, no copy to wait for, no fence, no signal: one way over the link between the last product and the result.
//!
//! | CTAs | producer | storer | consumers |
//! | --- | --- | --- | --- |
//! | computing | operands of every tile; A's box is cut to the rows of the call | | multiply; send others' rows; add and store own rows |
//!
//! Tiles, credits and epochs are those of [`super::few_rows_reduce_scatter`]. The words of two epochs have memory of their own, as
//! slots do, so a credit two epochs old is what a sender waits for. A CTA waits for others' words of a tile before its next tile:
//! every rank sends its tiles from left to right, so of those that no rank has sent yet, the first waits for nobody.

use super::Kernel;
use super::few_rows_reduce_scatter::Call;
use super::gemm_reduce_scatter::GemmReduceScatter;
use super::places::own_workspace;
use crate::abi::{GemmReduceScatterArgs, Wait, WaitKind};
use crate::collective::epilogue::for_each_panel;
use crate::collective::finish::finish_of;
use crate::collective::mainloop::multiply;
use crate::collective::setup::operand_ring;
use crate::comm::signal::tile_tag;
use crate::comm::workspace::Workspace;
use crate::config::{Registers, TileConfig};
use crate::layout::flagged::{FlaggedRows, flagged_panel_bytes, flagged_tile_bytes};
use crate::machine::{Aborted, PutSignals, RowsFinish, RowsOut, ThreadRole, WarpgroupRole};
use crate::pipeline::state::PipelineState;
use crate::schedule::shared::SharedTile;
use crate::shape::{CtaPosition, Rank, Role, div_ceil};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`. Calls have at most `C::TILE_M` rows.
pub struct LowLatencyReduceScatter<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

/// Panels of `tile` that hold an existing column.
#[inline(always)]
const fn panels<C: TileConfig>(tile: &SharedTile) -> u32 {
    div_ceil(tile.cols, C::PANEL_COLS)
}

impl<C: TileConfig> Call<'_, C> {
    /// The words of `sender` for panel `panel` of `tile` of `owner`, in the owner's workspace.
    #[inline(always)]
    fn words(&self, at: Workspace, sender: Rank, owner: Rank, tile: u32, consumer: u32, panel: u32) -> FlaggedRows {
        let shard = self.args.shard;
        let tile_bytes = flagged_tile_bytes(C::TILE_N, C::OUT.bytes(), shard);
        let segment = self.tiles.segment(owner, consumer);
        FlaggedRows {
            base: at
                .flagged(self.epoch, sender, [tile, self.tiles.count()], tile_bytes)
                .plus(panel as u64 * flagged_panel_bytes(shard)),
            plane_rows: shard,
            first: segment.first,
            rows: segment.rows,
            chunk_row: segment.chunk_row,
        }
    }

    /// Consumer: sends each other owner its rows of `tile`.
    #[inline(always)]
    fn send<M: WarpgroupRole<C>>(&self, m: &M, tile: &SharedTile, consumer: u32, acc: &M::Acc) {
        let mut step = 0;
        while step + 1 < self.args.world {
            if let Some(owner) = self.owner(step) {
                for_each_panel!(panels::<C>(tile), PANEL => {
                    let rows = self.words(self.of(owner), self.rank(), owner, tile.index, consumer, PANEL);
                    m.send_rows(&rows, &m.panel::<PANEL>(acc), self.epoch);
                });
            }
            step += 1;
        }
    }

    /// Consumer: waits for `words` of `sender`.
    #[inline(always)]
    fn take<M: WarpgroupRole<C>>(
        &self,
        m: &M,
        words: &FlaggedRows,
        sender: u32,
        tile: u32,
        consumer: u32,
    ) -> Result<M::Panel, Aborted> {
        let mut patience = m.patience();
        loop {
            match m.take_rows(words, self.epoch) {
                Ok(panel) => return Ok(panel),
                Err(seen) => m.pause(&mut patience, || Wait {
                    role: Role::Consumer(consumer),
                    kind: WaitKind::Signal,
                    index: tile_tag(sender, tile),
                    awaited: self.epoch,
                    seen,
                })?,
            }
        }
    }

    /// Consumer: adds up the own rows of `tile` over the ranks, in rank order, finishes and stores them.
    #[inline(always)]
    fn finish<M: WarpgroupRole<C>>(
        &self,
        m: &M,
        tile: &SharedTile,
        consumer: u32,
        acc: &M::Acc,
    ) -> Result<(), Aborted> {
        let (own, segment) = (own_workspace::<C>(self.args), self.tiles.segment(self.rank(), consumer));
        if segment.rows == 0 {
            return Ok(());
        }
        for_each_panel!(panels::<C>(tile), PANEL => {
            let mut sum = m.zero_panel();
            let mut sender = 0;
            while sender < self.args.world {
                if sender == self.args.rank {
                    m.add_to(&mut sum, &m.round(m.panel::<PANEL>(acc)));
                } else {
                    let words = self.words(own, Rank(sender), self.rank(), tile.index, consumer, PANEL);
                    m.add_to(&mut sum, &self.take(m, &words, sender, tile.index, consumer)?);
                }
                sender += 1;
            }
            let col = C::panel_col(PANEL);
            let bytes = (tile.col + col) as u64 * C::OUT.bytes() as u64;
            m.store_rows(&RowsOut {
                first: segment.first,
                rows: segment.rows,
                cols: tile.cols - col,
                dst: self.args.d.plus(segment.chunk_row as u64 * self.args.d_stride + bytes),
                stride: self.args.d_stride,
                finish: self.epilogue.map(|epilogue| RowsFinish {
                    how: finish_of::<M, C>(m, epilogue, tile.col + col, tile.cols - col),
                    c: epilogue.c.plus(segment.chunk_row as u64 * epilogue.c_stride + bytes),
                    c_stride: epilogue.c_stride,
                }),
            }, &sum);
        });
        Ok(())
    }

    #[inline(always)]
    pub(super) fn exchange<M: WarpgroupRole<C>, const STAGES: u32>(&self, m: &M, consumer: u32) -> Result<(), Aborted> {
        let role = Role::Consumer(consumer);
        let operands = operand_ring::<M, C, STAGES>(m, role);
        let mut state = PipelineState::start();
        let mut nth = 0;
        while let Some(tile) = self.compute_tile(nth) {
            if nth == 0 {
                // While the first stages are on their way.
                self.wait_credits(m, role)?;
            }
            let mut acc = m.zero_acc();
            let rows = self.rows_of(consumer);
            multiply::<M, C, STAGES>(&operands, &mut state, consumer, rows, self.k_tiles(), &mut acc)?;
            self.send(m, &tile, consumer, &acc);
            self.finish(m, &tile, consumer, &acc)?;
            nth += 1;
        }
        Ok(())
    }
}

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for LowLatencyReduceScatter<C, STAGES, BUFS> {
    type Args = GemmReduceScatterArgs;
    type Config = C;

    const REGISTERS: Registers = Registers::ONE_CONSUMER;
    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        match role {
            Role::Producer => Call::<C>::of_operands(args, at).produce::<M, STAGES>(m),
            Role::Storer | Role::Loader | Role::Consumer(_) => Ok(()),
        }
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &Self::Args, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        Call::<C>::new(m, args, None, at).exchange::<M, STAGES>(m, consumer)
    }

    /// As in [`GemmReduceScatter`]: credits, and the next epoch.
    #[inline(always)]
    fn leave<M: PutSignals>(m: &M, args: &Self::Args, at: CtaPosition) {
        GemmReduceScatter::<C, STAGES, BUFS>::leave(m, args, at);
    }
}
