//! The control: acquire, expect or commit; wait, release.
#![deny(unused_must_use)]

use tilewire_kernels::collective::setup::{operand_ring, panel_ring};
use tilewire_kernels::config::{PANEL_BUFS, Tile128x256};
use tilewire_kernels::machine::{Aborted, Mbarriers, Watch};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

pub fn produce<M: Mbarriers + Watch>(m: &M) -> Result<(), Aborted> {
    let ring = operand_ring::<M, Tile128x256, 4>(m, Role::Producer);
    let free = ring.producer_acquire(PipelineState::start())?;
    let _filling = ring.producer_expect(free, 64);
    Ok(())
}

pub fn write<M: Mbarriers + Watch>(m: &M) -> Result<(), Aborted> {
    let ring = panel_ring::<M, Tile128x256, PANEL_BUFS>(m, Role::Consumer(0), 0);
    let free = ring.producer_acquire(PipelineState::start())?;
    ring.producer_commit(free);
    Ok(())
}

pub fn read<M: Mbarriers + Watch>(m: &M) -> Result<(), Aborted> {
    let ring = operand_ring::<M, Tile128x256, 4>(m, Role::Consumer(0));
    let ready = ring.consumer_wait(PipelineState::start())?;
    ring.consumer_release(ready);
    Ok(())
}

fn main() {}
