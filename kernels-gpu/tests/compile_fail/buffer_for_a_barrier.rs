//! A panel's address is no barrier's.

use tilewire_kernels::config::{Tile128x256, TileConfig};
use tilewire_kernels::machine::Mbarriers;

pub fn arrive<M: Mbarriers>(m: &M) {
    m.arrive(Tile128x256::SMEM.panel(0, 0));
}

fn main() {}
