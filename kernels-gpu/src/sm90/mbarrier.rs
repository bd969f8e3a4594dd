//! mbarrier instructions. `bar` is an address in the shared window, 8-byte aligned.

use core::arch::asm;

/// `mbarrier.init`. By one thread, before any other use.
#[inline(always)]
pub unsafe fn init(bar: u32, arrivals: u32) {
    // SAFETY: the caller's.
    unsafe { asm!("mbarrier.init.shared::cta.b64 [{}], {};", in(reg32) bar, in(reg32) arrivals, options(nostack)) }
}

/// `mbarrier.arrive`, release at CTA scope.
#[inline(always)]
pub unsafe fn arrive(bar: u32) {
    // SAFETY: the caller's.
    unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{}];", in(reg32) bar, options(nostack)) }
}

/// `mbarrier.arrive` with a count.
#[inline(always)]
pub unsafe fn arrive_many(bar: u32, count: u32) {
    // SAFETY: the caller's.
    unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{}], {};", in(reg32) bar, in(reg32) count, options(nostack)) }
}

/// `mbarrier.arrive.expect_tx`.
#[inline(always)]
pub unsafe fn arrive_expect_tx(bar: u32, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};", in(reg32) bar, in(reg32) bytes, options(nostack))
    }
}

/// `mbarrier.try_wait.parity`, acquire at CTA scope; may suspend for a short time.
#[inline(always)]
pub unsafe fn try_wait_parity(bar: u32, parity: u32) -> bool {
    let done: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{", ".reg .pred p;",
            "mbarrier.try_wait.parity.shared::cta.b64 p, [{b}], {p};",
            "selp.u32 {r}, 1, 0, p;",
            "}}",
            b = in(reg32) bar, p = in(reg32) parity, r = out(reg32) done, options(nostack)
        )
    };
    done != 0
}
