//! Plain GEMM with an epilogue, `D = act(alpha · (A · B) + beta · C + bias) + residual`: the tiles and operands of
//! [`super::gemm`], and panels that come and go as in [`crate::collective::finish`]. Of a tile that is cut along K, whoever
//! finishes it brings the panels and applies the epilogue.

use super::Kernel;
use super::gemm::{GemmTile, for_each_tile, grid, produce, sum, tile_cols};
use crate::abi::{GemmEpilogueArgs, Operand, Source};
use crate::collective::finish::finish_panels;
use crate::collective::partials::{PartialsState, load_partials, store_results};
use crate::collective::result::store_to_d;
use crate::collective::setup::operand_ring;
use crate::config::{PANEL_BYTES, PANEL_ROWS, TileConfig};
use crate::layout::slot::TileExtent;
use crate::machine::{Aborted, ThreadRole, WarpgroupRole};
use crate::pipeline::state::PipelineState;
use crate::shape::{CtaPosition, Role, min};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`.
pub struct GemmEpilogue<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for GemmEpilogue<C, STAGES, BUFS> {
    type Args = GemmEpilogueArgs;
    type Config = C;

    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        let (gemm, mut state) = (&args.gemm, PartialsState::<BUFS>::start());
        let (raster, work) = grid::<C>(gemm, at);
        match role {
            Role::Producer => produce::<M, C, STAGES>(m, gemm, at),
            Role::Loader => {
                let brings = args.epilogue.source != Source::None as u32;
                for_each_tile!(gemm, at, raster, work, tile => {
                    if tile.part.is_given_away() {
                        continue;
                    }
                    load_partials::<M, C, _>(
                        m,
                        &mut state,
                        tile.extent,
                        0..1,
                        |_| Ok(()),
                        |_, consumer| if brings && tile.extent.rows_of(consumer) > 0 { PANEL_BYTES } else { 0 },
                        |_, consumer, panel, dst, slot| {
                            let (row, col) = (tile.row + consumer * PANEL_ROWS, tile.col + panel * C::PANEL_COLS);
                            m.load_box(dst, Operand::C, row, col, slot.full());
                        },
                    )?;
                });
                Ok(())
            }
            Role::Storer => {
                for_each_tile!(gemm, at, raster, work, tile => {
                    if tile.part.is_given_away() {
                        continue;
                    }
                    store_results::<M, C, _>(m, &mut state, tile.extent.panels::<C>(), 1, |consumer, panel, src| {
                        store_to_d::<M, C>(m, gemm, [tile.row, tile.col], tile.extent, consumer, panel, src);
                    })?;
                });
                m.wait_group_complete::<0>();
                Ok(())
            }
            Role::Consumer(_) => Ok(()),
        }
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &Self::Args, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        let gemm = &args.gemm;
        let operands = operand_ring::<M, C, STAGES>(m, Role::Consumer(consumer));
        let (mut operand_state, mut state) = (PipelineState::start(), PartialsState::<BUFS>::start());
        let (raster, work) = grid::<C>(gemm, at);
        for_each_tile!(gemm, at, raster, work, tile => {
            let mut acc = m.zero_acc();
            if !sum::<M, C, STAGES>(&operands, &mut operand_state, gemm, consumer, &work, &tile.part, &mut acc)? {
                continue;
            }
            finish_panels::<M, C, _>(m, &mut state, consumer, tile.col, tile.extent, None, &args.epilogue, &acc)?;
        });
        Ok(())
    }
}
