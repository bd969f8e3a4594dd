//! A tile whose last panel begins within the one before has no place in a slot.

use tilewire_kernels::config::Tile;
use tilewire_kernels::layout::slot::panel_offset;

const _: u32 = panel_offset::<Tile<128, 96, 2>>(0, 1);

fn main() {}
