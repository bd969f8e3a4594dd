//! Bulk copies (TMA). Shared addresses are in the shared window. By one thread.

use crate::abi::TensorMap;
use core::arch::asm;

/// `cp.async.bulk.tensor.2d` global → shared. `map` lies in parameter space, 64-byte aligned; `dst` is 1024-byte aligned.
#[inline(always)]
pub unsafe fn tensor_2d_load(dst: u32, map: *const TensorMap, col: u32, row: u32, bar: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [{d}], [{m}, {{{x}, {y}}}], [{b}];",
            d = in(reg32) dst, m = in(reg64) map, x = in(reg32) col, y = in(reg32) row, b = in(reg32) bar, options(nostack)
        )
    }
}

/// `cp.async.bulk.tensor.2d` shared → global, in the current bulk group.
#[inline(always)]
pub unsafe fn tensor_2d_store(map: *const TensorMap, col: u32, row: u32, src: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [{m}, {{{x}, {y}}}], [{s}];",
            m = in(reg64) map, x = in(reg32) col, y = in(reg32) row, s = in(reg32) src, options(nostack)
        )
    }
}

/// `cp.async.bulk` global → shared.
#[inline(always)]
pub unsafe fn load(dst: u32, src: u64, bytes: u32, bar: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{d}], [{s}], {n}, [{b}];",
            d = in(reg32) dst, s = in(reg64) src, n = in(reg32) bytes, b = in(reg32) bar, options(nostack)
        )
    }
}

/// `cp.async.bulk` shared → global, in the current bulk group.
#[inline(always)]
pub unsafe fn store(dst: u64, src: u32, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "cp.async.bulk.global.shared::cta.bulk_group [{d}], [{s}], {n};",
            d = in(reg64) dst, s = in(reg32) src, n = in(reg32) bytes, options(nostack)
        )
    }
}

/// `cp.async.bulk.commit_group`.
#[inline(always)]
pub unsafe fn commit_group() {
    // SAFETY: the caller's.
    unsafe { asm!("cp.async.bulk.commit_group;", options(nostack)) }
}

/// `cp.async.bulk.wait_group.read`: at most `PENDING` latest groups have yet to read their sources.
#[inline(always)]
pub unsafe fn wait_group_read<const PENDING: u32>() {
    // SAFETY: the caller's.
    unsafe { asm!("cp.async.bulk.wait_group.read {};", const PENDING, options(nostack)) }
}

/// `cp.async.bulk.wait_group`: at most `PENDING` latest groups have yet to be written.
#[inline(always)]
pub unsafe fn wait_group<const PENDING: u32>() {
    // SAFETY: the caller's.
    unsafe { asm!("cp.async.bulk.wait_group {};", const PENDING, options(nostack)) }
}
