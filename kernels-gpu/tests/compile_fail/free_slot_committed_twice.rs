//! A buffer that was acquired once is committed twice.

use tilewire_kernels::collective::setup::panel_ring;
use tilewire_kernels::config::{PANEL_BUFS, Tile128x256};
use tilewire_kernels::machine::{Aborted, Mbarriers, Watch};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

pub fn write<M: Mbarriers + Watch>(m: &M) -> Result<(), Aborted> {
    let ring = panel_ring::<M, Tile128x256, PANEL_BUFS>(m, Role::Consumer(0), 0);
    let free = ring.producer_acquire(PipelineState::start())?;
    ring.producer_commit(free);
    ring.producer_commit(free);
    Ok(())
}

fn main() {}
