//! Cross-rank signals: epochs that are released after data and acquired before it.

use crate::abi::{Wait, WaitKind};
use crate::machine::{Aborted, BulkCopy, PutSignals, Signals, Watch};
use crate::shape::{GlobalAddr, Role};

/// Whether epoch `seen` is `awaited` or a later one. Epochs wrap; only those within 2³¹ of each other are compared.
#[inline(always)]
pub const fn epoch_reached(seen: u32, awaited: u32) -> bool {
    seen.wrapping_sub(awaited) as i32 >= 0
}

/// Waits until the word at `addr`, written at system scope, has reached `epoch`.
#[inline(always)]
pub fn wait_signal<M: Signals + Watch>(
    m: &M,
    role: Role,
    kind: WaitKind,
    index: u32,
    addr: GlobalAddr,
    epoch: u32,
) -> Result<(), Aborted> {
    let mut patience = m.patience();
    loop {
        let seen = m.load_acquire_sys(addr);
        if epoch_reached(seen, epoch) {
            return Ok(());
        }
        m.pause(&mut patience, || Wait { role, kind, index, awaited: epoch, seen })?;
    }
}

/// Waits until the word at `addr`, written by another CTA of this GPU, has reached `epoch`.
#[inline(always)]
pub fn wait_local_signal<M: Signals + Watch>(
    m: &M,
    role: Role,
    kind: WaitKind,
    index: u32,
    addr: GlobalAddr,
    epoch: u32,
) -> Result<(), Aborted> {
    let mut patience = m.patience();
    loop {
        let seen = m.load_acquire_gpu(addr);
        if epoch_reached(seen, epoch) {
            return Ok(());
        }
        m.pause(&mut patience, || Wait { role, kind, index, awaited: epoch, seen })?;
    }
}

/// Signals `epoch` at `addr`, on any rank, once this thread's bulk groups but the latest `PENDING` have been written.
#[inline(always)]
pub fn put_signal<const PENDING: u32, M: PutSignals + BulkCopy>(m: &M, addr: GlobalAddr, epoch: u32) {
    m.wait_group_complete::<PENDING>();
    m.fence_proxy_async_global();
    m.store_release_sys(addr, epoch);
}

/// Signals `epoch` to other CTAs of this GPU, once this thread's bulk groups but the latest `PENDING` have been written.
#[inline(always)]
pub fn put_local_signal<const PENDING: u32, M: PutSignals + BulkCopy>(m: &M, addr: GlobalAddr, epoch: u32) {
    m.wait_group_complete::<PENDING>();
    m.fence_proxy_async_global();
    m.store_release_gpu(addr, epoch);
}

/// The index that fault records give for a tile of a rank.
#[inline(always)]
pub const fn tile_tag(rank: u32, tile: u32) -> u32 {
    rank << 24 | tile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_compare_across_the_wrap() {
        assert!(epoch_reached(0, 0xFFFF_FFFF));
        assert!(epoch_reached(3, 0xFFFF_FFFD));
        assert!(!epoch_reached(0xFFFF_FFFF, 0));
        assert!(epoch_reached(0x8000_0000, 0x7FFF_FFFF));
        assert!(!epoch_reached(0x7FFF_FFFF, 0x8000_0000));
    }
}
