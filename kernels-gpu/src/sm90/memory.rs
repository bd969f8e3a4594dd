//! Global memory: words with scope and order in their names, and 16-byte accesses.

use core::arch::asm;

macro_rules! load {
    ($(#[$doc:meta])* $name:ident, $op:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name(addr: u64) -> u32 {
            let value: u32;
            // SAFETY: the caller's.
            unsafe { asm!(concat!($op, " {}, [{}];"), out(reg32) value, in(reg64) addr, options(nostack)) };
            value
        }
    };
}

macro_rules! store {
    ($(#[$doc:meta])* $name:ident, $op:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name(addr: u64, value: u32) {
            // SAFETY: the caller's.
            unsafe { asm!(concat!($op, " [{}], {};"), in(reg64) addr, in(reg32) value, options(nostack)) };
        }
    };
}

load!(
    /// `ld.acquire.sys`.
    load_acquire_sys, "ld.acquire.sys.global.u32");
load!(
    /// `ld.acquire.gpu`.
    load_acquire_gpu, "ld.acquire.gpu.global.u32");
load!(
    /// `ld.relaxed.gpu`.
    load_relaxed_gpu, "ld.relaxed.gpu.global.u32");
load!(
    /// `ld.relaxed.sys`.
    load_relaxed_sys, "ld.relaxed.sys.global.u32");
load!(
    /// `ld`.
    load_u32, "ld.global.u32");
store!(
    /// `st.release.sys`.
    store_release_sys, "st.release.sys.global.u32");
store!(
    /// `st.release.gpu`.
    store_release_gpu, "st.release.gpu.global.u32");
store!(
    /// `st.relaxed.gpu`.
    store_relaxed_gpu, "st.relaxed.gpu.global.u32");
store!(
    /// `st.relaxed.sys`.
    store_relaxed_sys, "st.relaxed.sys.global.u32");

/// `fence.acq_rel.sys`.
#[inline(always)]
pub unsafe fn fence_sys() {
    // SAFETY: a fence.
    unsafe { asm!("fence.acq_rel.sys;", options(nostack)) }
}

/// `atom.add.acq_rel.gpu`; the value before.
#[inline(always)]
pub unsafe fn fetch_add_acq_rel_gpu(addr: u64, value: u32) -> u32 {
    let before: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!("atom.acq_rel.gpu.global.add.u32 {}, [{}], {};", out(reg32) before, in(reg64) addr, in(reg32) value, options(nostack))
    };
    before
}

/// `atom.exch.relaxed.gpu`; the value before.
#[inline(always)]
pub unsafe fn exchange_relaxed_gpu(addr: u64, value: u32) -> u32 {
    let before: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!("atom.relaxed.gpu.global.exch.b32 {}, [{}], {};", out(reg32) before, in(reg64) addr, in(reg32) value, options(nostack))
    };
    before
}

/// `ld.global.u32` where `exists`, else 0. No branch.
#[inline(always)]
pub unsafe fn load_u32_if(addr: u64, exists: bool) -> u32 {
    let value: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {e}, 0; mov.u32 {v}, 0; @p ld.global.u32 {v}, [{a}]; }}",
            v = out(reg32) value, e = in(reg32) exists as u32, a = in(reg64) addr, options(nostack)
        )
    };
    value
}

/// `ld.global.u16` where `exists`, else 0, as the lower half of a word. No branch.
#[inline(always)]
pub unsafe fn load_u16_if(addr: u64, exists: bool) -> u32 {
    let value: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {e}, 0; mov.u32 {v}, 0; @p ld.global.u16 {v}, [{a}]; }}",
            v = out(reg32) value, e = in(reg32) exists as u32, a = in(reg64) addr, options(nostack)
        )
    };
    value
}

/// `ld.global.v4`: 16 bytes.
#[inline(always)]
pub unsafe fn load_v4(addr: u64) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "ld.global.v4.u32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) addr, options(nostack)
        )
    };
    [a, b, c, d]
}

/// `st.global.v4`: 16 bytes.
#[inline(always)]
pub unsafe fn store_v4(addr: u64, v: [u32; 4]) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "st.global.v4.u32 [{}], {{{}, {}, {}, {}}};",
            in(reg64) addr, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], options(nostack)
        )
    };
}

/// `st.global.u16`.
#[inline(always)]
pub unsafe fn store_u16(addr: u64, v: u16) {
    // SAFETY: the caller's.
    unsafe { asm!("st.global.u16 [{}], {};", in(reg64) addr, in(reg16) v, options(nostack)) };
}

/// Stores the first `bytes` bytes of 16, a multiple of 2.
#[inline(always)]
pub unsafe fn store_first(addr: u64, words: [u32; 4], bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        store_halves(addr, words[0], bytes);
        store_halves(addr + 4, words[1], bytes.saturating_sub(4));
        store_halves(addr + 8, words[2], bytes.saturating_sub(8));
        store_halves(addr + 12, words[3], bytes.saturating_sub(12));
    }
}

/// Stores the halves of a word that lie within the first `bytes` bytes.
#[inline(always)]
unsafe fn store_halves(addr: u64, word: u32, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        if bytes >= 2 {
            store_u16(addr, word as u16);
        }
        if bytes >= 4 {
            store_u16(addr + 2, (word >> 16) as u16);
        }
    }
}

/// `st.global.u32`.
#[inline(always)]
pub unsafe fn store_u32(addr: u64, v: u32) {
    // SAFETY: the caller's.
    unsafe { asm!("st.global.u32 [{}], {};", in(reg64) addr, in(reg32) v, options(nostack)) };
}
