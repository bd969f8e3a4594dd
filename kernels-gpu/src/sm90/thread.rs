//! Special registers, under `cuda_std`'s names where it has them.

use core::arch::asm;
use core::arch::nvptx;

/// `%tid.x`, read anew at each call: a value kept over a kernel's roles costs each of them a register.
#[inline(always)]
pub fn thread_idx_x() -> u32 {
    let tid: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {}, %tid.x;", out(reg32) tid, options(nomem, nostack)) };
    tid
}

/// `%ctaid.x`.
#[inline(always)]
pub fn block_idx_x() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_block_idx_x() as u32 }
}

/// `%nctaid.x`.
#[inline(always)]
pub fn grid_dim_x() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_x() as u32 }
}

/// The same value, which the compiler cannot find again by other means.
#[inline(always)]
pub fn settled(mut value: u32) -> u32 {
    // SAFETY: a comment.
    unsafe { asm!("// settled: {}", inout(reg32) value, options(nomem, nostack)) };
    value
}

/// Nothing, but the compiler keeps the branch that this stands on apart from others: what is constant there is not set in front
/// of the branch.
#[inline(always)]
pub fn here() {
    // SAFETY: a comment.
    unsafe { asm!("// here", options(nomem, nostack)) }
}

/// `%globaltimer`: nanoseconds, coarse.
#[inline(always)]
pub fn globaltimer() -> u64 {
    let ns: u64;
    // SAFETY: reads a special register; volatile, since it changes.
    unsafe { asm!("mov.u64 {}, %globaltimer;", out(reg64) ns, options(nomem, nostack)) };
    ns
}

/// `%clock`: ticks of the SM's clock, wrapping. Ordered with memory accesses before and after it.
#[inline(always)]
pub fn clock() -> u32 {
    let ticks: u32;
    // SAFETY: reads a special register; volatile, since it changes.
    unsafe { asm!("mov.u32 {}, %clock;", out(reg32) ticks, options(nostack)) };
    ticks
}

/// Address in the shared window of the CTA's dynamic shared memory.
#[inline(always)]
pub fn dynamic_shared_base() -> u32 {
    let base: u32;
    // SAFETY: takes the address of the symbol declared in `entry`.
    unsafe { asm!("mov.u32 {}, dyn_smem;", out(reg32) base, options(pure, nomem, nostack)) };
    base
}
