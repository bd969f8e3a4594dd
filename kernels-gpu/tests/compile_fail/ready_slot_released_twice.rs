//! A buffer that was waited for once is released twice.

use tilewire_kernels::collective::setup::panel_ring;
use tilewire_kernels::config::{PANEL_BUFS, Tile128x256};
use tilewire_kernels::machine::{Aborted, Mbarriers, Watch};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

pub fn read<M: Mbarriers + Watch>(m: &M) -> Result<(), Aborted> {
    let ring = panel_ring::<M, Tile128x256, PANEL_BUFS>(m, Role::Storer, 0);
    let ready = ring.consumer_wait(PipelineState::start())?;
    ring.consumer_release(ready);
    ring.consumer_release(ready);
    Ok(())
}

fn main() {}
