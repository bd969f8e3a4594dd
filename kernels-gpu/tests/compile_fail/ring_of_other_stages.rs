//! A ring of four stages over a configuration of three.

use tilewire_kernels::collective::setup::operand_ring;
use tilewire_kernels::config::Tile128x256;
use tilewire_kernels::shape::Role;

fn main() {
    let _ring = operand_ring::<_, Tile128x256, 4>(&(), Role::Producer);
}
