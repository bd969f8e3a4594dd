//! 128×256 with five stages needs 273 KB of shared memory.

use tilewire_kernels::config::{Tile, TileConfig};

const _: () = Tile::<128, 256, 5>::CHECKED;

fn main() {}
