//! A buffer is waited for and never released: the ring would stop.
#![deny(unused_must_use)]

use tilewire_kernels::collective::setup::panel_ring;
use tilewire_kernels::config::{PANEL_BUFS, Tile128x256};
use tilewire_kernels::machine::{Aborted, Mbarriers, Watch};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

pub fn read<M: Mbarriers + Watch>(m: &M) -> Result<(), Aborted> {
    let ring = panel_ring::<M, Tile128x256, PANEL_BUFS>(m, Role::Storer, 0);
    ring.consumer_wait(PipelineState::start())?;
    Ok(())
}

fn main() {}
