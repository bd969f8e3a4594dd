//! Barriers among threads, votes, fences and register hand-over.

use core::arch::asm;

use crate::kernels::Kernel;

/// `barrier.sync 0`: all threads of the CTA. Called by every thread, diverged or not.
#[inline(always)]
pub unsafe fn sync_threads() {
    // SAFETY: the caller's.
    unsafe { asm!("barrier.sync 0;", options(nostack)) }
}

/// `griddepcontrol.wait`: until the kernel ahead in the stream has ended and what it wrote is there; at once where this one was
/// not launched before that.
#[inline(always)]
pub unsafe fn wait_for_previous() {
    // SAFETY: waits for work that waits for nothing of this kernel.
    unsafe { asm!("griddepcontrol.wait;", options(nostack)) }
}

/// `griddepcontrol.launch_dependents`: as far as this CTA goes, the kernel behind in the stream may start.
#[inline(always)]
pub unsafe fn let_next_start() {
    // SAFETY: a hint; that kernel waits for the end of this one.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack)) }
}

/// `bar.warp.sync` of all 32 lanes, which also orders their memory accesses.
#[inline(always)]
pub unsafe fn sync_warp() {
    // SAFETY: the caller's.
    unsafe { asm!("bar.warp.sync 0xffffffff;", options(nostack)) }
}

/// `elect.sync`: true in one lane. Called by every lane of the warp.
///
/// What only one thread does goes behind this rather than behind a comparison of lanes: ptxas then knows that no other is there.
/// Otherwise it makes a loop over active threads around every bulk copy, which took a producer 40 ns of a stage's 185.
#[inline(always)]
pub unsafe fn elect() -> bool {
    let elected: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{", ".reg .pred p;",
            "elect.sync _|p, 0xffffffff;",
            "selp.u32 {e}, 1, 0, p;",
            "}}",
            e = out(reg32) elected, options(nostack)
        )
    };
    elected != 0
}

/// `value` of lane 0, in all lanes: for what they all have the same of, so that ptxas knows it. What follows from it then lives in
/// uniform registers, and branches on it keep a warp together; without that, descriptors cost two moves for each wgmma.
/// Called by every lane of the warp.
#[inline(always)]
pub unsafe fn uniform(value: u32) -> u32 {
    let shared: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!("shfl.sync.idx.b32 {}, {}, 0, 0x1f, 0xffffffff;", out(reg32) shared, in(reg32) value, options(nostack))
    }
    shared
}

/// `barrier.sync` of the 128 threads of one warpgroup, which also orders their memory accesses. Called by all of them; each
/// consumer warpgroup has a barrier of its own.
#[inline(always)]
pub unsafe fn sync_warpgroup() {
    let number = super::thread::thread_idx_x() / crate::shape::WARPGROUP_THREADS;
    // SAFETY: the caller's.
    unsafe { asm!("barrier.sync {}, 128;", in(reg32) number, options(nostack)) }
}

/// `vote.sync.all`: whether `value` holds in all 32 lanes. Called by every lane of the warp.
#[inline(always)]
pub unsafe fn vote_all(value: bool) -> bool {
    let all: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{", ".reg .pred p, q;",
            "setp.ne.u32 p, {v}, 0;",
            "vote.sync.all.pred q, p, 0xffffffff;",
            "selp.u32 {r}, 1, 0, q;",
            "}}",
            v = in(reg32) value as u32, r = out(reg32) all, options(nostack)
        )
    };
    all != 0
}

/// `vote.sync.any`: whether `value` holds in any of the 32 lanes. Called by every lane of the warp.
#[inline(always)]
pub unsafe fn vote_any(value: bool) -> bool {
    // SAFETY: the caller's.
    unsafe { !vote_all(!value) }
}

/// `fence.proxy.async.shared::cta`: this thread's generic accesses to shared memory before later accesses of the copy
/// engine, by whoever learns of them through a barrier: its reads of what was written, and its writes over what was read.
#[inline(always)]
pub unsafe fn fence_proxy_async_shared() {
    // SAFETY: a fence.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack)) }
}

/// `fence.proxy.async.global`: between this thread's generic and async-proxy accesses to global memory.
#[inline(always)]
pub unsafe fn fence_proxy_async_global() {
    // SAFETY: a fence.
    unsafe { asm!("fence.proxy.async.global;", options(nostack)) }
}

/// `fence.mbarrier_init`: barrier initialisation before its use by the async proxy and other threads.
#[inline(always)]
pub unsafe fn fence_mbarrier_init() {
    // SAFETY: a fence.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack)) }
}

/// `setmaxnreg.dec` to what a mover of kernel `K` keeps. By all threads of a warpgroup.
#[inline(always)]
pub unsafe fn give_registers<K: Kernel>() {
    // SAFETY: the caller's.
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {};", const K::REGISTERS.mover, options(nostack)) }
}

/// `setmaxnreg.inc` to what a consumer of kernel `K` gets. By all threads of a warpgroup; waits until they are free.
#[inline(always)]
pub unsafe fn take_registers<K: Kernel>() {
    // SAFETY: the caller's.
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {};", const K::REGISTERS.consumer, options(nostack)) }
}

/// The value that `read` gives in lane 0, in all lanes, with lane 0's memory order. Called by every lane of the warp;
/// `lane_0` says which one is lane 0.
#[inline(always)]
pub unsafe fn broadcast(lane_0: bool, read: impl Fn() -> u32) -> u32 {
    let mut value = 0;
    if lane_0 {
        value = read();
    }
    // SAFETY: the caller's.
    unsafe {
        let shared = uniform(value);
        sync_warp();
        shared
    }
}

/// `nanosleep`: up to twice `ns` nanoseconds, at most 1 ms.
#[inline(always)]
pub unsafe fn nanosleep(ns: u32) {
    // SAFETY: sleeps.
    unsafe { asm!("nanosleep.u32 {};", in(reg32) ns, options(nostack)) }
}
