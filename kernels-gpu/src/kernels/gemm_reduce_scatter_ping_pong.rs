//! GEMM + ReduceScatter by consumers that take turns: the tiles, slots, signals, credits and epochs of
//! [`super::gemm_reduce_scatter`], and each tile one consumer's, which sends or adds it up while the other multiplies.
//!
//! | role | tiles of other owners | own tiles, which come last |
//! | --- | --- | --- |
//! | producer | operands | operands |
//! | consumer whose turn it is | multiplies, writes its panels | multiplies, adds peers' panels in rank order |
//! | storer | panels to the owner's slot, then the signal | results to D |
//! | loader | | peers' panels |
//!
//! Tiles are *pushed*, and partials added in the *epilogue*. A mover has 40 registers: what the launch says is read again
//! for each tile.

use super::Kernel;
use super::gemm_reduce_scatter::{GemmReduceScatter, own_workspace, tiles, workspace};
use crate::abi::{GemmReduceScatterArgs, Operand, WaitKind};
use crate::collective::epilogue::write_panels;
use crate::collective::mainloop::load_operands;
use crate::collective::partials::take_buffers_of;
use crate::collective::ping_pong::{HALVES, Turn, init_turn_barriers, multiply_whole, store_whole};
use crate::collective::setup::{OperandRing, operand_ring, panel_ring};
use crate::collective::turn_partials::{
    LivePanels, OwnTurn, add_partials_of_half, load_partials_of, loads_for, panels_for_others, store_results_of,
};
use crate::comm::signal::{put_signal, tile_tag, wait_signal};
use crate::config::{PANEL_ROWS, Registers, TileConfig};
use crate::layout::slot::panel_offset;
use crate::machine::{Aborted, Mbarriers, PutSignals, Reread, Signals, ThreadRole, WarpgroupRole};
use crate::pipeline::state::PipelineState;
use crate::schedule::chunked::{ChunkTile, TileWalk};
use crate::shape::{CtaPosition, Rank, Role, SmemAddr, div_ceil};

/// The kernel; `STAGES` is `C::STAGES`. Columns of D are whole steps of 16 bytes, and tiles start at any row, as the host and
/// the configuration see to.
pub struct GemmReduceScatterPingPong<C, const STAGES: u32>(core::marker::PhantomData<C>);

/// One CTA's view of the call: what can be read again, and nothing else.
struct Call<'a, C> {
    args: &'a GemmReduceScatterArgs,
    at: CtaPosition,
    config: core::marker::PhantomData<C>,
}

impl<'a, C: TileConfig> Call<'a, C> {
    #[inline(always)]
    fn new(args: &'a GemmReduceScatterArgs, at: CtaPosition) -> Self {
        const { assert!(C::ROW_ALIGN == 1, "a tile with a lead is added from its slots") };
        Self { args, at, config: core::marker::PhantomData }
    }

    /// The same, of which nothing has been read yet.
    #[inline(always)]
    fn again<M: Reread>(&self, m: &M) -> Self {
        Self::new(m.reread(self.args), m.relocate(self.at))
    }

    /// The tile of this CTA's turn `turn`.
    #[inline(always)]
    fn tile(&self, turn: u32) -> Option<ChunkTile> {
        tiles::<C>(self.args).nth(self.at.cta + turn * self.at.num_ctas, self.args.world)
    }

    /// How much exists of the own tile of turn `turn`, which there is.
    #[inline(always)]
    fn live(&self, turn: u32) -> LivePanels {
        let index = self.at.cta + turn * self.at.num_ctas - self.others();
        LivePanels::of::<C>(tiles::<C>(self.args).tile_of(Rank(self.args.rank), index).extent)
    }

    /// Tiles of other owners.
    #[inline(always)]
    fn others(&self) -> u32 {
        let tiles = tiles::<C>(self.args);
        tiles.all_tiles() - tiles.own_tiles()
    }

    /// Turns of this CTA at them.
    #[inline(always)]
    fn turns_for_others(&self) -> u32 {
        let others = self.others();
        if self.at.cta < others { div_ceil(others - self.at.cta, self.at.num_ctas) } else { 0 }
    }

    #[inline(always)]
    fn k_tiles(&self) -> u32 {
        div_ceil(self.args.k, C::TILE_K)
    }

    #[inline(always)]
    fn epoch<M: Signals>(&self, m: &M) -> u32 {
        m.load_acquire_gpu(own_workspace::<C>(self.args).epoch())
    }

    /// This rank and the number of ranks.
    #[inline(always)]
    fn who(&self) -> (u32, u32) {
        (self.args.rank, self.args.world)
    }

    #[inline(always)]
    fn produce<M: ThreadRole, const STAGES: u32>(&self, m: &M) -> Result<(), Aborted> {
        let ring = operand_ring::<M, C, STAGES>(m, Role::Producer);
        let mut state = PipelineState::start();
        let k_tiles = self.k_tiles();
        let mut walk = TileWalk::new(tiles::<C>(self.args), self.at.cta, self.at.num_ctas);
        while let Some((row, col)) = walk.next() {
            load_operands::<M, C, STAGES>(&ring, &mut state, row, col, [0, k_tiles], C::A_BOX)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn store<M: ThreadRole>(&self, m: &M) -> Result<(), Aborted> {
        let mut at = OwnTurn::first(self.store_for_others(m)?);
        while let Some(tile) = self.again(m).tile(at.turn) {
            store_results_of::<M, C>(m, at, loads_for(self.again(m).args.world), |half, panel, src| {
                let (row, col) = (tile.chunk_row + half * PANEL_ROWS, tile.col + panel * C::PANEL_COLS);
                if tile.extent.rows_of(half) > 0 && col < self.again(m).args.n {
                    m.store_box(Operand::D, row, col, src);
                }
            })?;
            at = at.next();
        }
        m.wait_group_complete::<0>();
        Ok(())
    }

    /// Storer: takes tiles of other owners to their slots; returns how many.
    #[inline(always)]
    fn store_for_others<M: ThreadRole>(&self, m: &M) -> Result<u32, Aborted> {
        let (mut turn, mut credited) = (0, self.args.rank);
        while let Some(tile) = self.again(m).tile(turn) {
            let (call, owner) = (self.again(m), tile.owner);
            if owner.0 == call.args.rank {
                break;
            }
            let epoch = call.epoch(m);
            if owner.0 != credited {
                let credit = own_workspace::<C>(call.args).credit(owner);
                wait_signal(m, Role::Storer, WaitKind::Credit, owner.0, credit, epoch.wrapping_sub(2))?;
                // The owner's reads come before the copy engine's next writes.
                m.fence_proxy_async_global();
                credited = owner.0;
            }
            store_whole::<M, C>(m, turn, |half, panel, src| self.push(m, &tile, epoch, half, panel, src))?;
            let call = self.again(m);
            let signal = workspace::<C>(call.args, owner).signal(Rank(call.args.rank), tile.index);
            put_signal::<0, M>(m, signal, epoch);
            turn += 1;
        }
        Ok(turn)
    }

    /// Storer: sends panel `panel` of half `half` of `tile` to its owner's slot.
    #[inline(always)]
    fn push<M: ThreadRole>(&self, m: &M, tile: &ChunkTile, epoch: u32, half: u32, panel: u32, src: SmemAddr) {
        let (call, bytes) = (self.again(m), tile.extent.panel_bytes(half));
        if bytes > 0 && panel * C::PANEL_COLS < tile.extent.cols {
            let slot = workspace::<C>(call.args, tile.owner).slot(epoch, Rank(call.args.rank), tile.index);
            m.store_bytes(slot.plus(panel_offset::<C>(half, panel) as u64), src, bytes);
            if call.args.pace_ns > 0 {
                m.linger(call.args.pace_ns);
            }
        }
    }

    /// Loader: brings the peers' panels of own tiles.
    #[inline(always)]
    fn load<M: ThreadRole>(&self, m: &M) -> Result<(), Aborted> {
        let mut at = OwnTurn::first(self.turns_for_others());
        while let Some(tile) = self.again(m).tile(at.turn) {
            if at.is_consumers_first() {
                let panels = panels_for_others::<C>(at.consumer(), self.again(m).turns_for_others());
                take_buffers_of::<M, C>(m, at.consumer(), panels)?;
            }
            let epoch = self.again(m).epoch(m);
            self.wait_partials(m, tile.index, epoch)?;
            let live = self.again(m).live(at.turn);
            let own = || own_workspace::<C>(m.reread(self.args));
            let slot = own().slot(epoch, Rank(0), tile.index);
            let of_peer = |peer: u32| slot.plus(peer as u64 * own().slot_stride());
            load_partials_of::<M, C>(m, at, live, || self.again(m).who(), of_peer)?;
            at = at.next();
        }
        Ok(())
    }

    /// Loader: waits for the peers' partials of own tile `tile`.
    #[inline(always)]
    fn wait_partials<M: ThreadRole>(&self, m: &M, tile: u32, epoch: u32) -> Result<(), Aborted> {
        let mut peer = 0;
        while peer < self.again(m).args.world {
            let call = self.again(m);
            if peer != call.args.rank {
                let signal = own_workspace::<C>(call.args).signal(Rank(peer), tile);
                wait_signal(m, Role::Loader, WaitKind::Signal, tile_tag(peer, tile), signal, epoch)?;
            }
            peer += 1;
        }
        m.fence_proxy_async_global();
        Ok(())
    }

    #[inline(always)]
    fn consume<M: WarpgroupRole<C>, const STAGES: u32>(&self, m: &M, consumer: u32) -> Result<(), Aborted> {
        let operands = operand_ring::<M, C, STAGES>(m, Role::Consumer(consumer));
        let panels = panel_ring::<M, C>(m, Role::Consumer(consumer), consumer);
        let k_tiles = || self.again(m).k_tiles();
        let mut operand_state = PipelineState::start();
        if consumer == 1 {
            operand_state = operand_state.advanced_by(k_tiles());
        }
        let mut panel_state = PipelineState::start();
        let before = self.turns_for_others();
        let mut turn = consumer;
        while turn < before {
            let (mut top, mut bottom) = (m.any_acc(), m.any_acc());
            take_turn::<M, C, STAGES>(&operands, &mut operand_state, turn, k_tiles, &mut top, &mut bottom)?;
            write_panels::<M, C>(&panels, &mut panel_state, consumer, C::PANELS, &top)?;
            write_panels::<M, C>(&panels, &mut panel_state, consumer, C::PANELS, &bottom)?;
            turn += 2;
        }
        m.arrive(C::SMEM.handover(consumer));
        let mut partials = PipelineState::start();
        while self.again(m).tile(turn).is_some() {
            // Zeros, made while the other multiplies: the registers of anything would be kept over the whole loop.
            let (mut top, mut bottom) = (m.zero_acc(), m.zero_acc());
            take_turn::<M, C, STAGES>(&operands, &mut operand_state, turn, k_tiles, &mut top, &mut bottom)?;
            let (top, bottom) = (m.round_acc(&top), m.round_acc(&bottom));
            let live = self.again(m).live(turn);
            // Only their place in the ring of panels counts, and that repeats after two tiles.
            let half = (turn - self.again(m).turns_for_others()) / 2 % 2 * HALVES;
            let who = || self.again(m).who();
            add_partials_of_half::<M, C>(m, &mut partials, consumer, half, live, who, &top)?;
            add_partials_of_half::<M, C>(m, &mut partials, consumer, half + 1, live, who, &bottom)?;
            turn += 2;
        }
        Ok(())
    }
}

/// Consumer: multiplies the tile of its turn `turn`, and leaves `state` at the one after it.
#[inline(always)]
fn take_turn<M: WarpgroupRole<C>, C: TileConfig, const STAGES: u32>(
    operands: &OperandRing<'_, M, STAGES>,
    state: &mut PipelineState<STAGES>,
    turn: u32,
    k_tiles: impl Fn() -> u32,
    top: &mut M::Acc,
    bottom: &mut M::Acc,
) -> Result<(), Aborted> {
    let mut turn = Turn::at(turn);
    turn.wait::<M, C>(operands.m)?;
    let pass = || turn.pass::<M, C>(operands.m);
    // All rows: those past the tensor's end arrive as zeros.
    multiply_whole::<M, C, STAGES>(operands, state, k_tiles(), [PANEL_ROWS; 2], top, bottom, pass)?;
    *state = state.advanced_by(k_tiles());
    Ok(())
}

impl<C: TileConfig, const STAGES: u32> Kernel for GemmReduceScatterPingPong<C, STAGES> {
    type Args = GemmReduceScatterArgs;
    type Config = C;

    const REGISTERS: Registers = Registers::WIDE;

    #[inline(always)]
    fn setup<M: Mbarriers>(m: &M) {
        init_turn_barriers::<M, C>(m);
    }

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        let call = Call::<C>::new(args, at);
        match role {
            Role::Producer => call.produce::<M, STAGES>(m),
            Role::Storer => call.store(m),
            Role::Loader => call.load(m),
            Role::Consumer(_) => Ok(()),
        }
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &Self::Args, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        Call::<C>::new(args, at).consume::<M, STAGES>(m, consumer)
    }

    /// As in [`GemmReduceScatter`]: credits, and the next epoch.
    #[inline(always)]
    fn leave<M: PutSignals>(m: &M, args: &Self::Args, at: CtaPosition) {
        GemmReduceScatter::<C, STAGES>::leave(m, args, at);
    }
}
