//! A ring of three stages over a configuration of four.

use tilewire_kernels::collective::setup::operand_ring;
use tilewire_kernels::config::Tile128x256;
use tilewire_kernels::shape::Role;

fn main() {
    let _ring = operand_ring::<_, Tile128x256, 3>(&(), Role::Producer);
}
