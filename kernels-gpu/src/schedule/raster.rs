//! The order of the tiles of a grid of tiles.
//!
//! Tiles are walked down `group` rows of tiles, then one column to the right, so that CTAs that run together share rows of
//! A and columns of B in L2. The map from linear index to tile is a bijection onto the grid.

use crate::shape::{div_rem, min};

/// A grid of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raster {
    /// Rows of tiles.
    pub tiles_m: u32,
    /// Columns of tiles.
    pub tiles_n: u32,
    /// Rows of tiles that are walked together.
    pub group: u32,
}

impl Raster {
    /// Tiles of the grid.
    #[inline(always)]
    pub const fn num_tiles(&self) -> u32 {
        self.tiles_m * self.tiles_n
    }

    /// Row and column of tiles of the `linear`-th tile.
    #[inline(always)]
    pub const fn tile(&self, linear: u32) -> (u32, u32) {
        let (group_idx, rest) = div_rem(linear, self.group * self.tiles_n);
        let first = group_idx * self.group;
        let (col, row) = div_rem(rest, min(self.tiles_m - first, self.group));
        (first + row, col)
    }
}
