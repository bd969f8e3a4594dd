//! GEMM + ReduceScatter by consumers that take turns: the tiles, slots, signals, credits and epochs of
//! [`super::gemm_reduce_scatter`], and each tile one consumer's, which sends or adds it up while the other multiplies.
//!
//! | role | tiles of other owners | own tiles, which come between |
//! | --- | --- | --- |
//! | producer | operands | operands |
//! | loader | empty buffers | peers' panels |
//! | consumer whose turn it is | multiplies, writes its panels | multiplies, adds peers' panels in rank order |
//! | storer | panels to the owner's slot, then the signal | results to D |
//!
//! Tiles are *pushed*, and partials added in the *epilogue*; in which order they come is [`crate::schedule::mixed`]'s.
//! A mover has 40 registers.

use super::Kernel;
use super::gemm_reduce_scatter::GemmReduceScatter;
use super::places::{own_workspace, tiles, workspace};
use crate::abi::{GemmReduceScatterArgs, Operand, WaitKind};
use crate::collective::mainloop::load_operands;
use crate::collective::ping_pong::{HALVES, Turn, init_turn_barriers, multiply_whole};
use crate::collective::setup::{OperandRing, operand_ring};
use crate::collective::turn_partials::{TurnTile, TurnUses, add_partials_of_half, load_partials_of, store_results_of};
use crate::comm::route::owner_at_step;
use crate::comm::signal::{put_signal, tile_tag, wait_signal};
use crate::config::{PANEL_ROWS, Registers, TileConfig};
use crate::layout::slot::panel_offset;
use crate::machine::{Aborted, Mbarriers, PutSignals, Settle, Signals, ThreadRole, WarpgroupRole};
use crate::pipeline::state::PipelineState;
use crate::schedule::chunked::ChunkTile;
use crate::schedule::mixed::MixedTiles;
use crate::shape::{CtaPosition, Rank, Role, SmemAddr, div_ceil, div_rem};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`. K is at least 1, columns of D are whole steps of 16
/// bytes, and tiles start at any row, as the host and the configuration see to.
pub struct GemmReduceScatterPingPong<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

/// One CTA's view of the call: what the launch says, and nothing found from it.
struct Call<'a, C> {
    args: &'a GemmReduceScatterArgs,
    at: CtaPosition,
    config: core::marker::PhantomData<C>,
}

/// Where the storer takes a tile, in three registers: an own one to row and column of D, another to its owner's slot.
#[derive(Clone, Copy)]
struct Destination {
    tile: TurnTile,
    /// Row in D, or the owner.
    x: u32,
    /// Column, or the tile's index.
    y: u32,
}

impl Destination {
    #[inline(always)]
    fn settled<M: Settle>(self, m: &M) -> Self {
        Self { tile: self.tile.settled(m), x: m.settle(self.x), y: m.settle(self.y) }
    }
}

impl<'a, C: TileConfig> Call<'a, C> {
    #[inline(always)]
    fn new(args: &'a GemmReduceScatterArgs, at: CtaPosition) -> Self {
        const { assert!(C::ROW_ALIGN == 1, "a tile with a lead is added from its slots") };
        Self { args, at, config: core::marker::PhantomData }
    }

    #[inline(always)]
    fn tiles(&self) -> MixedTiles {
        MixedTiles { tiles: tiles::<C>(self.args), at: self.at, mix: self.args.mix }
    }

    /// Whether this CTA has a turn `turn`.
    #[inline(always)]
    fn has(&self, turn: u32) -> bool {
        self.tiles().has(turn)
    }

    /// The tile of this CTA's turn `turn`, which it has.
    #[inline(always)]
    fn tile<M: Settle>(&self, m: &M, turn: u32) -> ChunkTile {
        let (owner, index) = self.place(m, turn);
        self.tile_at(owner, index)
    }

    /// Its owner and its index in the owner's chunk.
    #[inline(always)]
    fn place<M: Settle>(&self, m: &M, turn: u32) -> (Rank, u32) {
        let (step, index) = self.tiles().step_and_index(turn);
        let (step, index) = (m.settle(step), m.settle(index));
        (owner_at_step(Rank(self.args.rank), self.args.world, step), index)
    }

    #[inline(always)]
    fn tile_at(&self, owner: Rank, index: u32) -> ChunkTile {
        tiles::<C>(self.args).tile_of(owner, index)
    }

    /// First row and column of the tile of this CTA's turn `turn`, if it has one.
    #[inline(always)]
    fn start_of<M: Settle>(&self, m: &M, turn: u32) -> Option<(u32, u32)> {
        if !self.has(turn) {
            return None;
        }
        let tile = self.tile(m, turn);
        Some((tile.row, tile.col))
    }

    #[inline(always)]
    fn k_tiles(&self) -> u32 {
        div_ceil(self.args.k, C::TILE_K)
    }

    #[inline(always)]
    fn epoch<M: Signals + Settle>(&self, m: &M) -> u32 {
        m.settle(m.load_settled_gpu(own_workspace::<C>(self.args).epoch()))
    }

    /// What roles keep of `tile`.
    #[inline(always)]
    fn note<M: Settle>(&self, m: &M, tile: &ChunkTile) -> TurnTile {
        let ranks = if tile.owner.0 == self.args.rank { Some(self.args.world) } else { None };
        TurnTile::new::<C>(tile.extent, self.args.rank, ranks).settled(m)
    }

    #[inline(always)]
    fn produce<M: ThreadRole, const STAGES: u32>(&self, m: &M) -> Result<(), Aborted> {
        let ring = operand_ring::<M, C, STAGES>(m, Role::Producer);
        let mut state = PipelineState::start();
        let k_tiles = self.k_tiles();
        let boxes = [C::A_BOX, C::B_BOX];
        let middle = k_tiles / 2;
        let (mut turn, mut next) = (0, self.start_of(m, 0));
        while let Some((row, col)) = next {
            m.wait_for_previous();
            load_operands::<M, C, STAGES>(&ring, &mut state, row, col, [0, middle], boxes)?;
            // Between two tiles, finding the next one is what the consumers would wait for.
            turn += 1;
            next = self.start_of(m, turn);
            load_operands::<M, C, STAGES>(&ring, &mut state, row, col, [middle, k_tiles], boxes)?;
        }
        m.let_next_start();
        Ok(())
    }

    #[inline(always)]
    fn store<M: ThreadRole>(&self, m: &M) -> Result<(), Aborted> {
        let mut at = TurnUses::start();
        while self.has(at.turn()) {
            let (owner, index) = self.place(m, at.turn());
            let epoch = self.epoch(m);
            // Before the rest of the tile is known: beside it there are no registers to wait for another rank.
            if owner.0 != self.args.rank {
                self.wait_credit(m, owner, epoch)?;
            }
            let of = self.tile_at(owner, index);
            let tile = self.note(m, &of);
            let (x, y) = if tile.is_own() { (of.chunk_row, of.col) } else { (owner.0, index) };
            let to = Destination { tile, x, y }.settled(m);
            store_results_of::<M, C>(m, at, tile, |panel, src| self.store_panel(m, to, epoch, panel, src))?;
            if !tile.is_own() {
                let signal = workspace::<C>(self.args, Rank(to.x)).signal(Rank(self.args.rank), to.y);
                put_signal::<0, M>(m, signal, epoch);
            }
            at = at.next::<C>(tile.loads());
        }
        m.wait_group_complete::<0>();
        Ok(())
    }

    /// Storer: takes panel `panel` of a tile, counted through both halves, to where it goes.
    #[inline(always)]
    fn store_panel<M: ThreadRole>(&self, m: &M, to: Destination, epoch: u32, panel: u32, src: SmemAddr) {
        let (to, epoch) = (to.settled(m), m.settle(epoch));
        let bytes = to.tile.bytes::<C>(panel);
        if bytes == 0 {
            return;
        }
        let (half, nth) = div_rem(panel, C::PANELS);
        if to.tile.is_own() {
            m.store_box(Operand::D, to.x + half * PANEL_ROWS, to.y + nth * C::PANEL_COLS, src);
            return;
        }
        let slot = workspace::<C>(self.args, Rank(to.x)).slot(epoch, Rank(self.args.rank), to.y);
        m.store_bytes(slot.plus(panel_offset::<C>(half, nth) as u64), src, bytes);
        if self.args.pace_ns > 0 {
            m.linger(self.args.pace_ns);
        }
    }

    /// Storer: waits until `owner` has consumed what this rank sent it two epochs ago: the slots are free.
    #[inline(always)]
    fn wait_credit<M: ThreadRole>(&self, m: &M, owner: Rank, epoch: u32) -> Result<(), Aborted> {
        let credit = own_workspace::<C>(self.args).credit(owner);
        wait_signal(m, Role::Storer, WaitKind::Credit, owner.0, credit, m.settle(epoch).wrapping_sub(2))?;
        // The owner's reads come before the copy engine's next writes.
        m.fence_proxy_async_global();
        Ok(())
    }

    /// Loader: brings the peers' panels of own tiles, and empty buffers for tiles of others.
    #[inline(always)]
    fn load<M: ThreadRole>(&self, m: &M) -> Result<(), Aborted> {
        let (epoch, mut at) = (self.epoch(m), TurnUses::start());
        while self.has(at.turn()) {
            let tile = self.tile(m, at.turn());
            let (tile, index) = (self.note(m, &tile), m.settle(tile.index));
            if tile.is_own() {
                self.wait_partials(m, index, epoch)?;
            }
            let of_peer = |peer: u32| own_workspace::<C>(self.args).slot(epoch, Rank(peer), index);
            load_partials_of::<M, C>(m, at, tile, of_peer)?;
            at = at.next::<C>(tile.loads());
        }
        Ok(())
    }

    /// Loader: waits for the peers' partials of own tile `tile`.
    #[inline(always)]
    fn wait_partials<M: ThreadRole>(&self, m: &M, tile: u32, epoch: u32) -> Result<(), Aborted> {
        let mut peer = 0;
        while peer < self.args.world {
            if peer != self.args.rank {
                let signal = own_workspace::<C>(self.args).signal(Rank(peer), tile);
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
        let k_tiles = || self.k_tiles();
        // Counted from 0: of a turn that began as the consumer's number ptxas kept six copies. Uses are a number, since
        // a state would be two.
        let (mut nth, mut uses) = (0, 0);
        while self.has(nth * 2 + consumer) {
            let turn = nth * 2 + consumer;
            let tile = self.note(m, &self.tile(m, turn));
            let (mut top, mut bottom) = (m.zero_acc(), m.zero_acc());
            take_turn::<M, C, STAGES>(&operands, turn, k_tiles, &mut top, &mut bottom)?;
            let (top, bottom) = (m.round_acc(&top), m.round_acc(&bottom));
            // Only their place in the ring of panels counts, and that repeats after two tiles.
            let half = nth % 2 * HALVES;
            let loads = || C::PANELS * tile.settled(m).loads();
            add_partials_of_half::<M, C>(m, uses, consumer, half, tile, &top)?;
            uses += loads();
            add_partials_of_half::<M, C>(m, uses, consumer, half + 1, tile, &bottom)?;
            uses += loads();
            nth += 1;
        }
        Ok(())
    }
}

/// Consumer: multiplies the tile of its turn `turn`.
#[inline(always)]
fn take_turn<M: WarpgroupRole<C>, C: TileConfig, const STAGES: u32>(
    operands: &OperandRing<'_, M, STAGES>,
    turn: u32,
    k_tiles: impl Fn() -> u32,
    top: &mut M::Acc,
    bottom: &mut M::Acc,
) -> Result<(), Aborted> {
    // Found anew each time: it is not kept beside what is added up. Turns are as long as each other.
    const { assert!(STAGES.is_power_of_two(), "the place in the ring may be counted modulo 2³²") };
    let k_tiles = k_tiles();
    let mut state = PipelineState::start().advanced_by(turn.wrapping_mul(k_tiles));
    let mut turn = Turn::at(turn);
    turn.wait::<M, C>(operands.m)?;
    let pass = || turn.pass::<M, C>(operands.m);
    // All rows: those past the tensor's end arrive as zeros.
    multiply_whole::<M, C, STAGES>(operands, &mut state, k_tiles, [PANEL_ROWS; 2], top, bottom, pass)
}

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for GemmReduceScatterPingPong<C, STAGES, BUFS> {
    type Args = GemmReduceScatterArgs;
    type Config = C;

    const REGISTERS: Registers = Registers::WIDE;
    const OVERLAPS_PREVIOUS: bool = true;

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
        GemmReduceScatter::<C, STAGES, BUFS>::leave(m, args, at);
    }
}
