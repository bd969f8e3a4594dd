//! The tiles of GEMM + ReduceScatter with own ones between those for others, so that a link has most of the call for them.
//!
//! Chunks for others come in the order of [`ChunkedTiles`]. Of the last of them each CTA first computes some tiles, the head
//! start; then the CTAs' turns go to own tiles and to that chunk's in alternation, and when either runs out, to what is left of
//! the other.
//!
//! **No circle.** An own tile waits for the peers' tiles of the same index. On every rank, tile *i* for an owner comes after no
//! own tile of index *i* or more, and own tiles come in the order of their indices. So if all own tiles below *i* end on every
//! rank, all tiles *i* for others are sent, and own tile *i* ends too. Grids and head starts may differ between ranks.

use super::chunked::{ChunkTile, ChunkedTiles};
use crate::comm::route::owner_at_step;
use crate::shape::{CtaPosition, div_ceil, div_rem, max, min};

/// What the order is found from, in tiles. The same for all CTAs of a rank, so the host works it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Before the first own tile.
    pub unmixed: u32,
    /// The same in turns of the grid, where own tiles come between others at all: then it is whole turns.
    pub unmixed_turns: u32,
    /// Of the last chunk for others, before the first own tile.
    pub first: u32,
    /// In whole turns of the grid at own tiles, each followed by one at tiles for others.
    pub paired: u32,
    /// Own tiles after those.
    pub own_left: u32,
    /// Of the last chunk for others after those.
    pub others_left: u32,
}

impl Mix {
    /// For `ctas` CTAs, each of which computes `head_start` tiles of the last chunk for others, and 1 at least, before own ones
    /// come between.
    pub const fn new(tiles: &ChunkedTiles, ctas: u32, head_start: u32) -> Self {
        let (mut before, mut others, mut step) = (0, 0, 0);
        while step + 1 < tiles.world {
            before += others;
            others = tiles.raster(owner_at_step(tiles.rank, tiles.world, step)).num_tiles();
            step += 1;
        }
        let turns = div_ceil(before, ctas) as u64 + max(head_start, 1) as u64;
        let head = turns * ctas as u64 - before as u64;
        let first = if head < others as u64 { head as u32 } else { others };
        let own = tiles.own_tiles();
        let paired = div_rem(min(others - first, own), ctas).0 * ctas;
        Self {
            unmixed: before + first,
            unmixed_turns: turns as u32,
            first,
            paired,
            own_left: own - paired,
            others_left: others - first - paired,
        }
    }

    /// All tiles of the rank.
    #[inline(always)]
    pub const fn num_tiles(&self) -> u32 {
        self.unmixed + 2 * self.paired + self.own_left + self.others_left
    }

    /// Whether the tile of turn `turn` of CTA `at`, one after the unmixed, is an own one, and its index in its owner's chunk.
    #[inline(always)]
    const fn place(&self, turn: u32, at: CtaPosition) -> (bool, u32) {
        let linear = at.cta + turn * at.num_ctas - self.unmixed;
        if linear < 2 * self.paired {
            let (pair, for_others) = div_rem(turn - self.unmixed_turns, 2);
            let index = pair * at.num_ctas + at.cta;
            return if for_others == 0 { (true, index) } else { (false, self.first + index) };
        }
        let left = linear - 2 * self.paired;
        let own_first = min(self.own_left, at.num_ctas);
        if left < own_first {
            (true, self.paired + left)
        } else if left - own_first < self.others_left {
            (false, self.first + self.paired + left - own_first)
        } else {
            (true, self.paired + left - self.others_left)
        }
    }
}

/// The tiles of one CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedTiles {
    /// Those of its rank.
    pub tiles: ChunkedTiles,
    /// The CTA, and how many compute.
    pub at: CtaPosition,
    /// Made for them.
    pub mix: Mix,
}

impl MixedTiles {
    /// The CTA's tile of turn `turn`, or `None` past the last.
    #[inline(always)]
    pub const fn nth(&self, turn: u32) -> Option<ChunkTile> {
        if !self.has(turn) {
            return None;
        }
        let (tiles, (step, index)) = (&self.tiles, self.step_and_index(turn));
        Some(tiles.tile_of(owner_at_step(tiles.rank, tiles.world, step), index))
    }

    /// Whether the CTA has a turn `turn`.
    #[inline(always)]
    pub const fn has(&self, turn: u32) -> bool {
        self.at.cta + turn * self.at.num_ctas < self.mix.num_tiles()
    }

    /// Of turn `turn`, which the CTA has: the step of [`owner_at_step`], and the tile's index in that owner's chunk.
    #[inline(always)]
    pub const fn step_and_index(&self, turn: u32) -> (u32, u32) {
        let linear = self.at.cta + turn * self.at.num_ctas;
        if linear < self.mix.unmixed {
            return self.tiles.step_and_index(linear);
        }
        let (is_own, index) = self.mix.place(turn, self.at);
        (self.tiles.world - 1 - !is_own as u32, index)
    }
}
