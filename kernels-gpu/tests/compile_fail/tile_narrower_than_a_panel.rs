//! Columns come in panels of 64.

use tilewire_kernels::config::{Tile, TileConfig};

const _: () = Tile::<128, 48, 2>::CHECKED;

fn main() {}
