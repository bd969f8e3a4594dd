//! mbarrier instructions. `bar` is an address in the shared window, 8-byte aligned.

use core::arch::asm;

/// What an arrival counts: 1, a warp's by one lane after the others' accesses. With `every_lane_arrives` each of its lanes arrives,
/// and a thread on its own as often: racecheck takes accesses of lanes that do not arrive for unordered (`docs/protocols.md`).
const EACH: u32 = if cfg!(every_lane_arrives) { 32 } else { 1 };

/// `mbarrier.init`. By one thread, before any other use.
#[inline(always)]
pub unsafe fn init(bar: u32, arrivals: u32) {
    let arrivals = arrivals * EACH;
    // SAFETY: the caller's.
    unsafe { asm!("mbarrier.init.shared::cta.b64 [{}], {};", in(reg32) bar, in(reg32) arrivals, options(nostack)) }
}

/// `mbarrier.arrive`, release at CTA scope, by a thread on its own.
#[inline(always)]
pub unsafe fn arrive(bar: u32) {
    // SAFETY: the caller's.
    unsafe { if EACH == 1 { arrive_once(bar) } else { arrive_times(bar, EACH) } }
}

/// The same with a count.
#[inline(always)]
pub unsafe fn arrive_many(bar: u32, count: u32) {
    // SAFETY: the caller's.
    unsafe { arrive_times(bar, count * EACH) }
}

/// The same by a warp, whose lanes' accesses were ordered before. Called by every lane, converged. One lane is elected and not
/// branched to: behind a branch that lanes take differently LLVM puts copies of what follows, wgmma waits included, into
/// both ways, and those are for whole warps.
#[inline(always)]
pub unsafe fn arrive_as_warp(bar: u32) {
    // SAFETY: the caller's.
    unsafe {
        if EACH > 1 {
            return arrive_once(bar);
        }
        asm!(
            "{{", ".reg .pred p;",
            "elect.sync _|p, 0xffffffff;",
            "@p mbarrier.arrive.shared::cta.b64 _, [{b}];",
            "}}",
            b = in(reg32) bar, options(nostack)
        )
    }
}

/// The same with a count.
#[inline(always)]
pub unsafe fn arrive_many_as_warp(bar: u32, count: u32) {
    // SAFETY: the caller's.
    unsafe {
        if EACH > 1 {
            return arrive_times(bar, count);
        }
        asm!(
            "{{", ".reg .pred p;",
            "elect.sync _|p, 0xffffffff;",
            "@p mbarrier.arrive.shared::cta.b64 _, [{b}], {c};",
            "}}",
            b = in(reg32) bar, c = in(reg32) count, options(nostack)
        )
    }
}

/// `mbarrier.arrive.expect_tx`, by a thread on its own.
#[inline(always)]
pub unsafe fn arrive_expect_tx(bar: u32, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};", in(reg32) bar, in(reg32) bytes, options(nostack));
        if EACH > 1 {
            arrive_times(bar, EACH - 1);
        }
    }
}

#[inline(always)]
unsafe fn arrive_once(bar: u32) {
    // SAFETY: the caller's.
    unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{}];", in(reg32) bar, options(nostack)) }
}

#[inline(always)]
unsafe fn arrive_times(bar: u32, count: u32) {
    // SAFETY: the caller's.
    unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{}], {};", in(reg32) bar, in(reg32) count, options(nostack)) }
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

/// `mbarrier.test_wait.parity`, acquire at CTA scope; does not suspend.
#[inline(always)]
pub unsafe fn test_wait_parity(bar: u32, parity: u32) -> bool {
    let done: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{", ".reg .pred p;",
            "mbarrier.test_wait.parity.shared::cta.b64 p, [{b}], {p};",
            "selp.u32 {r}, 1, 0, p;",
            "}}",
            b = in(reg32) bar, p = in(reg32) parity, r = out(reg32) done, options(nostack)
        )
    };
    done != 0
}
