//! Plain GEMM, `D = A · B`, by consumers that take turns: each multiplies whole tiles, and writes its sums while the other
//! multiplies. Worth it where K is short and the way of the sums to memory a large part of a tile's time.

use super::Kernel;
use super::gemm::rows_of_a;
use crate::abi::{GemmArgs, Operand};
use crate::collective::epilogue::write_panels;
use crate::collective::mainloop::load_operands;
use crate::collective::ping_pong::{Turn, init_turn_barriers, multiply_whole, store_whole};
use crate::collective::setup::{operand_ring, panel_ring};
use crate::config::{PANEL_BUFS, PANEL_ROWS, Registers, TileConfig};
use crate::machine::{Aborted, Mbarriers, ThreadRole, WarpgroupRole};
use crate::pipeline::state::PipelineState;
use crate::schedule::raster::Raster;
use crate::shape::{CtaPosition, Role, div_ceil};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`. It cuts no tiles, and D has the operands' type,
/// since for f32 the registers do not suffice. Rows of D are whole steps of 16 bytes, as the host sees to: its storer
/// has no registers for their ends.
pub struct GemmPingPong<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

#[inline(always)]
fn raster<C: TileConfig>(args: &GemmArgs) -> Raster {
    Raster { tiles_m: div_ceil(args.m, C::TILE_M), tiles_n: div_ceil(args.n, C::TILE_N), group: args.raster_group }
}

#[inline(always)]
fn k_tiles<C: TileConfig>(args: &GemmArgs) -> u32 {
    div_ceil(args.k, C::TILE_K)
}

/// How many tiles consumer `consumer` multiplies: every other one of its CTA's. One number, since registers are few.
#[inline(always)]
fn tiles_of<C: TileConfig>(args: &GemmArgs, at: CtaPosition, consumer: u32) -> u32 {
    let (tiles, first) = (raster::<C>(args).num_tiles(), at.cta + consumer * at.num_ctas);
    if first < tiles { div_ceil(tiles - first, 2 * at.num_ctas) } else { 0 }
}

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for GemmPingPong<C, STAGES, BUFS> {
    type Args = GemmArgs;
    type Config = C;

    const REGISTERS: Registers = Registers::WIDE;
    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn setup<M: Mbarriers>(m: &M) {
        init_turn_barriers::<M, C>(m);
    }

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &GemmArgs, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        let raster = raster::<C>(args);
        let mut tile = at.cta;
        match role {
            Role::Producer => {
                let ring = operand_ring::<M, C, STAGES>(m, role);
                let mut state = PipelineState::start();
                // The host cuts the tensor map's box in the same way.
                let a_box = C::A_BOX.of_rows(C::A_MAJOR, args.m);
                while tile < raster.num_tiles() {
                    let (row, col) = raster.tile(tile);
                    let k = [0, k_tiles::<C>(args)];
                    let (row, col) = (row * C::TILE_M, col * C::TILE_N);
                    m.wait_for_previous();
                    load_operands::<M, C, STAGES>(&ring, &mut state, row, col, k, [a_box, C::B_BOX])?;
                    tile += at.num_ctas;
                }
                m.let_next_start();
                Ok(())
            }
            Role::Storer => {
                let mut turn: u32 = 0;
                while tile < raster.num_tiles() {
                    let (row, col) = raster.tile(tile);
                    let (row, col) = (row * C::TILE_M, col * C::TILE_N);
                    store_whole::<M, C>(m, turn, |half, panel, src| {
                        let (row, col) = (row + half * PANEL_ROWS, col + C::panel_col(panel));
                        if row < args.m && col < args.n {
                            m.store_box(Operand::D, row, col, src);
                        }
                    })?;
                    turn += 1;
                    tile += at.num_ctas;
                }
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
        let panels = panel_ring::<M, C, PANEL_BUFS>(m, role, consumer);
        let k_tiles = k_tiles::<C>(args);
        let mut operand_state = PipelineState::start();
        if consumer == 1 {
            operand_state = operand_state.advanced_by(k_tiles);
        }
        let mut panel_state = PipelineState::start();
        let mut turn = Turn::start(consumer);
        let mut left = tiles_of::<C>(args, at, consumer);
        while left > 0 {
            let (mut top, mut bottom) = (m.zero_acc(), m.zero_acc());
            turn.wait::<M, C>(m)?;
            let (state, rows) = (&mut operand_state, [0, 1].map(|half| rows_of_a::<C>(args.m, half)));
            let pass = || turn.pass::<M, C>(m);
            if k_tiles > 0 {
                multiply_whole::<M, C, STAGES>(&operands, state, k_tiles, rows, &mut top, &mut bottom, pass)?;
            } else {
                pass();
            }
            write_panels::<M, C, _>(&panels, &mut panel_state, consumer, C::PANELS, &top)?;
            write_panels::<M, C, _>(&panels, &mut panel_state, consumer, C::PANELS, &bottom)?;
            operand_state = operand_state.advanced_by(k_tiles);
            left -= 1;
        }
        Ok(())
    }
}
