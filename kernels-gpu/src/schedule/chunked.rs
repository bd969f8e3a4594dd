//! The tiles of GEMM + ReduceScatter: chunk by chunk in rank order, rastered within a chunk.

use super::raster::Raster;
use crate::comm::route::{Chunk, chunk_of, owner_at_step};
use crate::layout::slot::TileExtent;
use crate::shape::{Rank, div_ceil, min};

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
    /// Rows of a tile.
    pub tile_m: u32,
    /// Columns of a tile.
    pub tile_n: u32,
    /// Rows of tiles walked together.
    pub group: u32,
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
    /// First row, counted from the start of the chunk.
    pub chunk_row: u32,
    /// First column.
    pub col: u32,
    /// How much of it exists.
    pub extent: TileExtent,
}

impl ChunkedTiles {
    /// The tiles of `owner`'s chunk as a grid.
    #[inline(always)]
    pub const fn raster(&self, owner: Rank) -> (Chunk, Raster) {
        let chunk = chunk_of(self.m, self.world, owner);
        let raster = Raster {
            tiles_m: div_ceil(chunk.rows, self.tile_m),
            tiles_n: div_ceil(self.n, self.tile_n),
            group: self.group,
        };
        (chunk, raster)
    }

    /// Tile `index` of `owner`'s chunk; `index` is below the chunk's tile count.
    #[inline(always)]
    pub const fn tile_of(&self, owner: Rank, index: u32) -> ChunkTile {
        let (chunk, raster) = self.raster(owner);
        let (tile_row, tile_col) = raster.tile(index);
        let (chunk_row, col) = (tile_row * self.tile_m, tile_col * self.tile_n);
        ChunkTile {
            owner,
            index,
            row: chunk.first_row + chunk_row,
            chunk_row,
            col,
            extent: TileExtent { rows: min(chunk.rows - chunk_row, self.tile_m), cols: min(self.n - col, self.tile_n) },
        }
    }

    /// The `linear`-th tile that this rank computes among its first `steps` chunks, or `None` past the last.
    #[inline(always)]
    pub const fn nth(&self, linear: u32, steps: u32) -> Option<ChunkTile> {
        let (mut left, mut step) = (linear, 0);
        while step < steps {
            let owner = owner_at_step(self.rank, self.world, step);
            let tiles = self.raster(owner).1.num_tiles();
            if left < tiles {
                return Some(self.tile_of(owner, left));
            }
            left -= tiles;
            step += 1;
        }
        None
    }

    /// Tiles of this rank's own chunk.
    #[inline(always)]
    pub const fn own_tiles(&self) -> u32 {
        self.raster(self.rank).1.num_tiles()
    }
}

/// Most tiles any chunk of up to `max_m` rows has: what a slot must hold.
pub const fn max_chunk_tiles(max_m: u32, n: u32, world: u32, tile_m: u32, tile_n: u32) -> u32 {
    div_ceil(div_ceil(max_m, world), tile_m) * div_ceil(n, tile_n)
}
