//! A ring of four stages is asked for a place in a ring of two.

use tilewire_kernels::collective::setup::operand_ring;
use tilewire_kernels::config::Tile128x256;
use tilewire_kernels::machine::{Aborted, Mbarriers, Watch};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

pub fn produce<M: Mbarriers + Watch>(m: &M, state: PipelineState<2>) -> Result<(), Aborted> {
    let ring = operand_ring::<M, Tile128x256, 4>(m, Role::Producer);
    let free = ring.producer_acquire(state)?;
    ring.producer_commit(free);
    Ok(())
}

fn main() {}
