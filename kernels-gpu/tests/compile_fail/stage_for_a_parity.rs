//! A stage's index is no parity.

use tilewire_kernels::machine::Mbarriers;
use tilewire_kernels::pipeline::state::PipelineState;
use tilewire_kernels::shape::Mbarrier;

pub fn look<M: Mbarriers>(m: &M, full: Mbarrier, state: PipelineState<4>) -> bool {
    m.try_wait_parity(full, state.index())
}

fn main() {}
