//! A buffer whose copies were announced is committed as well: one arrival too many.

use tilewire_kernels::collective::setup::panel_ring;
use tilewire_kernels::config::{PANEL_BUFS, Tile128x256};
use tilewire_kernels::machine::{Aborted, Mbarriers, Watch};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

pub fn produce<M: Mbarriers + Watch>(m: &M) -> Result<(), Aborted> {
    let ring = panel_ring::<M, Tile128x256, PANEL_BUFS>(m, Role::Producer, 0);
    let free = ring.producer_acquire(PipelineState::start())?;
    let filling = ring.producer_expect(free, 64);
    ring.producer_commit(filling);
    Ok(())
}

fn main() {}
