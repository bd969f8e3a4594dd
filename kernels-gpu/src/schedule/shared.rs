//! The tiles of a call with few rows: one tile holds the rows of every owner, and tiles lie side by side.
//!
//! Each owner gets a segment of every tile: its own rows, at the place that they have in the tile, so that a row's swizzle is the
//! same at both ends.

use crate::comm::route::chunk_of;
use crate::config::PANEL_ROWS;
use crate::shape::{Rank, div_ceil, min};

/// The tiles that every rank computes, left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTiles {
    /// Rows of the problem, all in one tile.
    pub m: u32,
    /// Columns of the problem.
    pub n: u32,
    /// Ranks.
    pub world: u32,
    /// Columns of a tile.
    pub tile_n: u32,
}

/// One tile: all rows, some columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTile {
    /// Its number: its place in slots and signals of every owner.
    pub index: u32,
    /// First column.
    pub col: u32,
    /// Columns that exist.
    pub cols: u32,
}

/// Rows of one owner in one consumer's half of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First row, counted from the start of the half.
    pub first: u32,
    /// Number of rows; may be 0.
    pub rows: u32,
    /// Row of the owner's chunk that row `first` is.
    pub chunk_row: u32,
}

impl SharedTiles {
    /// Number of tiles.
    #[inline(always)]
    pub const fn count(&self) -> u32 {
        if self.m == 0 { 0 } else { div_ceil(self.n, self.tile_n) }
    }

    /// Tile `index`, or `None` past the last.
    #[inline(always)]
    pub const fn tile(&self, index: u32) -> Option<SharedTile> {
        if index >= self.count() {
            return None;
        }
        let col = index * self.tile_n;
        Some(SharedTile { index, col, cols: min(self.n - col, self.tile_n) })
    }

    /// The rows of `owner` in consumer `consumer`'s half of every tile.
    #[inline(always)]
    pub const fn segment(&self, owner: Rank, consumer: u32) -> Segment {
        let chunk = chunk_of(self.m, self.world, owner);
        let half = consumer * PANEL_ROWS;
        // Both ends of the chunk, clipped to the half and counted from its start.
        let first = min(chunk.first_row.saturating_sub(half), PANEL_ROWS);
        let end = min((chunk.first_row + chunk.rows).saturating_sub(half), PANEL_ROWS);
        Segment { first, rows: end - first, chunk_row: (half + first).saturating_sub(chunk.first_row) }
    }

    /// Whether `owner` owns any row.
    #[inline(always)]
    pub const fn owns(&self, owner: Rank) -> bool {
        chunk_of(self.m, self.world, owner).rows > 0
    }
}

/// Tiles of a call over any rows: what a slot must hold.
pub const fn shared_tile_count(n: u32, tile_n: u32) -> u32 {
    div_ceil(n, tile_n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_the_shard_rule_at_the_place_of_the_rows() {
        let tiles = SharedTiles { m: 17, n: 100, world: 4, tile_n: 64 };
        let of = |owner, consumer| tiles.segment(Rank(owner), consumer);
        assert_eq!(of(1, 0), Segment { first: 5, rows: 5, chunk_row: 0 });
        assert_eq!(of(3, 0), Segment { first: 15, rows: 2, chunk_row: 0 });
        assert_eq!(of(3, 1).rows, 0);
        assert_eq!(tiles.tile(1), Some(SharedTile { index: 1, col: 64, cols: 36 }));
        assert_eq!(tiles.tile(2), None);
    }

    #[test]
    fn a_chunk_over_both_halves_has_a_segment_in_each() {
        let tiles = SharedTiles { m: 128, n: 64, world: 3, tile_n: 64 };
        assert_eq!(tiles.segment(Rank(1), 0), Segment { first: 43, rows: 21, chunk_row: 0 });
        assert_eq!(tiles.segment(Rank(1), 1), Segment { first: 0, rows: 22, chunk_row: 21 });
    }
}
