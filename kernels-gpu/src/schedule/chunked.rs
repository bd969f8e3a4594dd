//! The tiles of GEMM + ReduceScatter: chunk by chunk in rank order, rastered within a chunk.
//!
//! The copy engine takes coordinates along the contiguous extent only in steps of 16 bytes. Where that extent is M, a
//! chunk's tiles start at the aligned row at or before the chunk's first one; the rows before it, the lead, are computed
//! and never stored.

use super::raster::Raster;
use crate::comm::route::{Chunk, owner_at_step};
use crate::layout::slot::TileExtent;
use crate::shape::{Rank, div_ceil, div_rem, min};

/// The tiles one rank computes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkedTiles {
    /// Rows of the problem.
    pub m: u32,
    /// Columns of the problem.
    pub n: u32,
    /// Rank that computes.
    pub rank: Rank,
    /// Ranks.
    pub world: u32,
    /// Rows of a whole chunk: [`crate::comm::route::shard_of`] them.
    pub shard: u32,
    /// Rows of a tile.
    pub tile_m: u32,
    /// Columns of a tile.
    pub tile_n: u32,
    /// Rows of tiles walked together.
    pub group: u32,
    /// Tiles start at rows that are multiples of this.
    pub row_align: u32,
}

/// One tile of one owner's chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkTile {
    /// Rank that keeps the tile.
    pub owner: Rank,
    /// Its index in the owner's chunk, in raster order: its place in slots and signals.
    pub index: u32,
    /// First row, counted from the start of the problem.
    pub row: u32,
    /// First row, counted from the start of the chunk; negative (wrapped) where the tile has a lead.
    pub chunk_row: u32,
    /// First column.
    pub col: u32,
    /// How much of it exists, its lead included.
    pub extent: TileExtent,
    /// Rows at its start that belong to the chunk before.
    pub lead: u32,
}

impl ChunkedTiles {
    /// The chunk of `owner` and its lead: the rows between the aligned row before it and its first one.
    #[inline(always)]
    const fn chunk(&self, owner: Rank) -> (Chunk, u32) {
        let chunk = Chunk::of_shard(self.m, self.shard, owner);
        let lead = if chunk.rows == 0 { 0 } else { div_rem(chunk.first_row, self.row_align).1 };
        (chunk, lead)
    }

    /// First row of the tiles of `owner`'s chunk.
    #[inline(always)]
    pub const fn first_row(&self, owner: Rank) -> u32 {
        let (chunk, lead) = self.chunk(owner);
        chunk.first_row - lead
    }

    /// The tiles of `owner`'s chunk as a grid.
    #[inline(always)]
    pub const fn raster(&self, owner: Rank) -> Raster {
        let (chunk, lead) = self.chunk(owner);
        Raster {
            tiles_m: div_ceil(chunk.rows + lead, self.tile_m),
            tiles_n: div_ceil(self.n, self.tile_n),
            group: self.group,
        }
    }

    /// Tile `index` of `owner`'s chunk; `index` is below the chunk's tile count.
    #[inline(always)]
    pub const fn tile_of(&self, owner: Rank, index: u32) -> ChunkTile {
        let (chunk, lead) = self.chunk(owner);
        let (tile_row, tile_col) = self.raster(owner).tile(index);
        let (first, col) = (tile_row * self.tile_m, tile_col * self.tile_n);
        let rows = min(chunk.rows + lead - first, self.tile_m);
        ChunkTile {
            owner,
            index,
            row: chunk.first_row - lead + first,
            chunk_row: first.wrapping_sub(lead),
            col,
            extent: TileExtent { rows, cols: min(self.n - col, self.tile_n) },
            lead: if tile_row == 0 { lead } else { 0 },
        }
    }

    /// The `linear`-th tile that this rank computes among its first `steps` chunks, or `None` past the last.
    #[inline(always)]
    pub const fn nth(&self, linear: u32, steps: u32) -> Option<ChunkTile> {
        let (step, index) = self.step_and_index(linear);
        let owner = owner_at_step(self.rank, self.world, step);
        if step < steps && index < self.raster(owner).num_tiles() { Some(self.tile_of(owner, index)) } else { None }
    }

    /// The same by its chunk's step and its index in the chunk, which is past the last chunk's end where there is no such tile.
    #[inline(always)]
    pub const fn step_and_index(&self, linear: u32) -> (u32, u32) {
        let (mut index, mut step) = (linear, 0);
        while step + 1 < self.world {
            let tiles = self.raster(owner_at_step(self.rank, self.world, step)).num_tiles();
            if index < tiles {
                break;
            }
            index -= tiles;
            step += 1;
        }
        (step, index)
    }

    /// Tiles that this rank computes.
    #[inline(always)]
    pub const fn all_tiles(&self) -> u32 {
        let (mut tiles, mut owner) = (0, 0);
        while owner < self.world {
            tiles += self.raster(Rank(owner)).num_tiles();
            owner += 1;
        }
        tiles
    }

    /// Lead of this rank's own chunk.
    #[inline(always)]
    pub const fn own_lead(&self) -> u32 {
        self.chunk(self.rank).1
    }

    /// Tiles of this rank's own chunk.
    #[inline(always)]
    pub const fn own_tiles(&self) -> u32 {
        self.raster(self.rank).num_tiles()
    }
}

/// One CTA's way through the tiles that its rank computes, for the role that may not pause between two of them: what
/// [`ChunkedTiles::nth`] finds out anew for each tile is kept, so that the next one costs the two divisions of a raster.
#[derive(Clone, Copy, Debug)]
pub struct TileWalk {
    tiles: ChunkedTiles,
    /// Tiles from one to the next.
    stride: u32,
    step: u32,
    /// Of the chunk at `step`: the next tile's index, which may be past its end; its tiles; its first row, less the lead.
    index: u32,
    raster: Raster,
    first_row: u32,
}

impl TileWalk {
    /// Before the tile `first`; every `stride`-th tile follows.
    #[inline(always)]
    pub const fn new(tiles: ChunkedTiles, first: u32, stride: u32) -> Self {
        let raster = Raster { tiles_m: 0, tiles_n: 0, group: 0 };
        Self { tiles, stride, step: 0, index: first, raster, first_row: 0 }.at_step(0)
    }

    #[inline(always)]
    const fn at_step(self, step: u32) -> Self {
        let owner = owner_at_step(self.tiles.rank, self.tiles.world, step);
        Self { step, raster: self.tiles.raster(owner), first_row: self.tiles.first_row(owner), ..self }
    }

    /// First row and column of the next tile.
    #[inline(always)]
    pub const fn next(&mut self) -> Option<(u32, u32)> {
        while self.index >= self.raster.num_tiles() {
            if self.step + 1 >= self.tiles.world {
                return None;
            }
            self.index -= self.raster.num_tiles();
            *self = self.at_step(self.step + 1);
        }
        let (row, col) = self.raster.tile(self.index);
        self.index += self.stride;
        Some((self.first_row + row * self.tiles.tile_m, col * self.tiles.tile_n))
    }
}

/// Most tiles any chunk of a call over up to `max_m` rows has: what a slot must hold.
pub const fn max_chunk_tiles(max_m: u32, n: u32, world: u32, tile: [u32; 2], row_align: u32) -> u32 {
    let rows = div_ceil(max_m, world);
    let with_lead = if rows == 0 { 0 } else { rows + (row_align - 1) };
    div_ceil(with_lead, tile[0]) * div_ceil(n, tile[1])
}
