//! A role goes on after its wait was aborted.
#![deny(unused_must_use)]

use tilewire_kernels::collective::setup::panel_ring;
use tilewire_kernels::config::{PANEL_BUFS, Tile128x256};
use tilewire_kernels::machine::{Aborted, Mbarriers, Watch};
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Role;

pub fn finish<M: Mbarriers + Watch>(m: &M) {
    let ring = panel_ring::<M, Tile128x256, PANEL_BUFS>(m, Role::Loader, 0);
    ring.producer_tail(PipelineState::start(), 2);
}

fn main() {
    let _: Option<Aborted> = None;
}
