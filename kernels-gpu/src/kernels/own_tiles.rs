//! The loader of GEMM + ReduceScatter: what is added to own tiles while the consumers hold them.

use super::gemm_reduce_scatter::Call;
use crate::abi::{Operand, Placement, Source, WaitKind};
use crate::collective::finish::loads_per_panel;
use crate::collective::partials::{PartialsState, load_partials, take_buffers};
use crate::comm::signal::{tile_tag, wait_signal};
use crate::config::{PANEL_BYTES, PANEL_ROWS, TileConfig};
use crate::layout::slot::panel_offset;
use crate::machine::{Aborted, ThreadRole};
use crate::shape::{Rank, Role};

impl<C: TileConfig> Call<'_, C> {
    /// Loader: brings the peers' panels of own tiles, in rank order, and what an epilogue adds.
    #[inline(always)]
    pub(super) fn load<M: ThreadRole, const BUFS: u32>(&self, m: &M) -> Result<(), Aborted> {
        if !self.reduces_in(Placement::Epilogue) {
            return Ok(());
        }
        let (mut nth, mut panels_before) = (0, 0);
        while let Some(tile) = self.plain_tile(nth) {
            panels_before += tile.extent.panels::<C>();
            nth += 1;
        }
        if self.compute_tile(nth).is_some() {
            take_buffers::<M, C, BUFS>(m, panels_before)?;
        }
        let (own, mut state) = (self.own(), PartialsState::<BUFS>::start());
        while let Some(tile) = self.compute_tile(nth) {
            // Peers in rank order; what the epilogue adds comes last, in the place of one more rank.
            let world = self.args.world;
            let sources = loads_per_panel(world - 1, self.epilogue) + 1;
            let brings = self.epilogue.is_some_and(|epilogue| epilogue.source != Source::None as u32);
            load_partials::<M, C, _>(
                m,
                &mut state,
                tile.extent,
                (0..sources).filter(|source| *source != self.args.rank),
                |peer| {
                    if peer == world {
                        return Ok(());
                    }
                    let signal = own.signal(Rank(peer), tile.index);
                    let tag = tile_tag(peer, tile.index);
                    wait_signal(m, Role::Loader, WaitKind::Signal, tag, signal, self.epoch)?;
                    m.fence_proxy_async_global();
                    Ok(())
                },
                |source, consumer| match tile.extent.panel_bytes(consumer) {
                    bytes if source < world => bytes,
                    bytes if brings && bytes > 0 => PANEL_BYTES,
                    _ => 0,
                },
                |peer, consumer, panel, dst, slot| {
                    if peer == world {
                        let row = tile.chunk_row + consumer * PANEL_ROWS;
                        m.load_box(dst, Operand::C, row, tile.col + panel * C::PANEL_COLS, slot.full());
                        return;
                    }
                    let src = own.slot(self.epoch, Rank(peer), tile.index);
                    let from = src.plus(panel_offset::<C>(consumer, panel) as u64);
                    m.load_bytes(dst, from, tile.extent.panel_bytes(consumer), slot.full());
                },
            )?;
            nth += 1;
        }
        Ok(())
    }
}
