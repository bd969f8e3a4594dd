//! Four consumer warpgroups need more registers than an SM has.

use tilewire_kernels::config::{Tile, TileConfig};

const _: () = Tile::<256, 64, 2>::CHECKED;

fn main() {}
