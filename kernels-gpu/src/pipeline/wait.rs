//! The one loop in which kernels wait for an mbarrier.

use crate::abi::{Wait, WaitKind};
use crate::machine::{Aborted, Mbarriers, Watch};
use crate::shape::{Mbarrier, Parity, Role};

/// Waits for the phase of `bar` with parity `parity` to complete.
#[inline(always)]
pub fn wait_mbarrier<M: Mbarriers + Watch>(
    m: &M,
    role: Role,
    kind: WaitKind,
    index: u32,
    bar: Mbarrier,
    parity: Parity,
) -> Result<(), Aborted> {
    let mut patience = m.patience();
    while !m.try_wait_parity(bar, parity) {
        m.pause(&mut patience, || Wait { role, kind, index, awaited: parity.0, seen: parity.0 ^ 1 })?;
    }
    Ok(())
}
