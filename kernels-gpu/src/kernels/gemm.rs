//! Plain GEMM, `D = A · Bᵀ`: a persistent grid over the tiles of D, some of which may be cut along K.

use super::Kernel;
use crate::abi::GemmArgs;
use crate::collective::epilogue::{scale, scale_factor, store_panels, write_panels};
use crate::collective::mainloop::{load_operands, multiply};
use crate::collective::result::store_to_d;
use crate::collective::setup::{OperandRing, operand_ring, panel_ring};
use crate::collective::share::Shares;
use crate::config::{Major, PANEL_ROWS, TileConfig};
use crate::layout::slot::TileExtent;
use crate::machine::{Aborted, ThreadRole, WarpgroupRole};
use crate::pipeline::state::PipelineState;
use crate::registers::Registers;
use crate::schedule::raster::Raster;
use crate::schedule::split_k::{Part, SplitTiles};
use crate::shape::{CtaPosition, Role, div_ceil, min};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`.
pub struct Gemm<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

/// One tile of D, or a part of one.
pub(super) struct GemmTile {
    pub(super) row: u32,
    pub(super) col: u32,
    pub(super) extent: TileExtent,
    pub(super) part: Part,
}

/// Columns of a tile of the call.
#[inline(always)]
pub(super) fn tile_cols<C: TileConfig>(args: &GemmArgs) -> u32 {
    if C::NARROWS { args.tile_cols } else { C::TILE_N }
}

/// The tiles of a call, and how the CTAs share them.
#[inline(always)]
pub(super) fn grid<C: TileConfig>(args: &GemmArgs, at: CtaPosition) -> (Raster, SplitTiles) {
    let (tiles_m, tiles_n) = (div_ceil(args.m, C::TILE_M), div_ceil(args.n, tile_cols::<C>(args)));
    let raster = Raster { tiles_m, tiles_n, group: args.raster_group };
    let (tiles, k_tiles) = (raster.num_tiles(), div_ceil(args.k, C::TILE_K));
    let (split_tiles, abreast) = if C::SPLITS { (args.split_tiles, args.abreast) } else { (0, 0) };
    (raster, SplitTiles { tiles, split_tiles, parts: args.parts, abreast, k_tiles, ctas: at.num_ctas })
}

/// Calls `$body` with each tile or part of one that this CTA works on.
macro_rules! for_each_tile {
    ($args:ident, $at:ident, $raster:ident, $work:ident, $tile:ident => $body:block) => {{
        let mut progress = $work.start($at);
        while let Some(part) = $work.next(&mut progress) {
            let (tile_row, tile_col) = $raster.tile(part.tile);
            let cols = tile_cols::<C>($args);
            let (row, col) = (tile_row * C::TILE_M, tile_col * cols);
            let extent = TileExtent { rows: min($args.m - row, C::TILE_M), cols: min($args.n - col, cols) };
            let $tile = GemmTile { row, col, extent, part };
            $body
        }
    }};
}
pub(super) use for_each_tile;

/// Rows of A that a stage brings for consumer `consumer`.
#[inline(always)]
pub(super) fn rows_of_a<C: TileConfig>(m: u32, consumer: u32) -> u32 {
    match C::A_MAJOR {
        Major::K => min(C::A_BOX.cut_to(m).rows.saturating_sub(consumer * PANEL_ROWS), PANEL_ROWS),
        Major::Mn => PANEL_ROWS,
    }
}

/// Consumer: multiplies `part`. Leaves in `acc`, which is zero, the whole sum of its tile; or gives the part to the CTA that
/// finishes the tile, and then the answer is false.
#[inline(always)]
pub(super) fn sum<M: WarpgroupRole<C>, C: TileConfig, const STAGES: u32>(
    operands: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    args: &GemmArgs,
    consumer: u32,
    work: &SplitTiles,
    part: &Part,
    acc: &mut M::Acc,
) -> Result<bool, Aborted> {
    let (rows, k_tiles) = ([rows_of_a::<C>(args.m, consumer), tile_cols::<C>(args)], part.k_end - part.k_begin);
    multiply::<M, C, STAGES>(operands, state, consumer, rows, k_tiles, acc)?;
    if C::SPLITS && k_tiles < work.k_tiles {
        let shares = Shares { base: args.shares, room: args.share_room, consumer };
        if part.is_given_away() {
            shares.give::<M, C>(operands.m, work, part, acc);
            return Ok(false);
        }
        shares.take::<M, C>(operands.m, work, part.tile, acc)?;
    }
    Ok(true)
}

/// Producer: every tile's operands.
#[inline(always)]
pub(super) fn produce<M: ThreadRole, C: TileConfig, const STAGES: u32>(
    m: &M,
    args: &GemmArgs,
    at: CtaPosition,
) -> Result<(), Aborted> {
    let ring = operand_ring::<M, C, STAGES>(m, Role::Producer);
    let mut state = PipelineState::start();
    let (raster, work) = grid::<C>(args, at);
    // The host cuts the tensor maps' boxes in the same way.
    let boxes =
        [C::A_BOX.of_rows(C::A_MAJOR, args.m), if C::NARROWS { C::B_BOX.cut_to(args.tile_cols) } else { C::B_BOX }];
    for_each_tile!(args, at, raster, work, tile => {
        let k = [tile.part.k_begin, tile.part.k_end];
        m.wait_for_previous();
        load_operands::<M, C, STAGES>(&ring, &mut state, tile.row, tile.col, k, boxes)?;
    });
    m.let_next_start();
    Ok(())
}

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for Gemm<C, STAGES, BUFS> {
    type Args = GemmArgs;
    type Config = C;

    const REGISTERS: Registers = if C::PROMOTES { Registers::PROMOTED } else { Registers::MAIN };
    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &GemmArgs, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        match role {
            Role::Producer => produce::<M, C, STAGES>(m, args, at),
            Role::Storer => {
                let mut state = PipelineState::<BUFS>::start();
                let (raster, work) = grid::<C>(args, at);
                for_each_tile!(args, at, raster, work, tile => {
                    if tile.part.is_given_away() {
                        continue;
                    }
                    store_panels::<M, C, _>(m, &mut state, tile.extent.panels::<C>(), |consumer, panel, src| {
                        store_to_d::<M, C>(m, args, [tile.row, tile.col], tile.extent, consumer, panel, src);
                    })?;
                });
                m.wait_group_complete::<0>();
                Ok(())
            }
            Role::Loader | Role::Consumer(_) => Ok(()),
        }
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &GemmArgs, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        let role = Role::Consumer(consumer);
        let operands = operand_ring::<M, C, STAGES>(m, role);
        let panels = panel_ring::<M, C, BUFS>(m, role, consumer);
        let (mut operand_state, mut panel_state) = (PipelineState::start(), PipelineState::start());
        let (raster, work) = grid::<C>(args, at);
        let factor = scale_factor::<M, C>(m, &args.scales);
        for_each_tile!(args, at, raster, work, tile => {
            let mut acc = m.zero_acc();
            if !sum::<M, C, STAGES>(&operands, &mut operand_state, args, consumer, &work, &tile.part, &mut acc)? {
                continue;
            }
            scale::<M, C>(m, &mut acc, factor);
            write_panels::<M, C, _>(&panels, &mut panel_state, consumer, tile.extent.panels::<C>(), &acc)?;
        });
        Ok(())
    }
}
