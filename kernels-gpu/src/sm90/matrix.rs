//! `stmatrix`, `ldmatrix` and conversions. By whole warps.

use core::arch::asm;

use crate::config::{Element, ElementType};

/// `stmatrix.x4`: four 8×8 matrices of 16-bit elements; `addr` is this lane's row.
#[inline(always)]
pub unsafe fn store_x4(addr: u32, v: [u32; 4]) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [{}], {{{}, {}, {}, {}}};",
            in(reg32) addr, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], options(nostack)
        )
    }
}

/// `ldmatrix.x4`: four 8×8 matrices of 16-bit elements; `addr` is this lane's row.
#[inline(always)]
pub unsafe fn load_x4(addr: u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) addr, options(nostack)
        )
    };
    [a, b, c, d]
}

/// `st.shared.v2.f32`.
#[inline(always)]
pub unsafe fn store_f32x2(addr: u32, v: [f32; 2]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("st.shared.v2.f32 [{}], {{{}, {}}};", in(reg32) addr, in(reg32) v[0], in(reg32) v[1], options(nostack))
    }
}

/// `ld.shared.v2.f32`.
#[inline(always)]
pub unsafe fn load_f32x2(addr: u32) -> [f32; 2] {
    let (a, b): (f32, f32);
    // SAFETY: the caller's.
    unsafe { asm!("ld.shared.v2.f32 {{{}, {}}}, [{}];", out(reg32) a, out(reg32) b, in(reg32) addr, options(nostack)) };
    [a, b]
}

/// `ld.shared.v4`: 16 bytes.
#[inline(always)]
pub unsafe fn load_v4(addr: u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "ld.shared.v4.u32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) addr, options(nostack)
        )
    };
    [a, b, c, d]
}

/// Two f32 rounded to two 16-bit elements, `low` in the lower half.
#[inline(always)]
pub fn pack<O: ElementType>(low: f32, high: f32) -> u32 {
    let packed: u32;
    // SAFETY: arithmetic on registers.
    unsafe {
        match O::ELEMENT {
            Element::F16 => asm!(
                "cvt.rn.f16x2.f32 {}, {}, {};",
                out(reg32) packed, in(reg32) high, in(reg32) low, options(pure, nomem, nostack)
            ),
            _ => asm!(
                "cvt.rn.bf16x2.f32 {}, {}, {};",
                out(reg32) packed, in(reg32) high, in(reg32) low, options(pure, nomem, nostack)
            ),
        }
    }
    packed
}

/// [`pack`] here and not later: what is packed is free from here on.
#[inline(always)]
pub fn pack_now<O: ElementType>(low: f32, high: f32) -> u32 {
    let mut packed = pack::<O>(low, high);
    // SAFETY: a comment.
    unsafe { asm!("// packed: {}", inout(reg32) packed, options(nostack)) };
    packed
}

/// The two 16-bit elements of a word as f32, the lower half first.
#[inline(always)]
pub fn unpack<O: ElementType>(packed: u32) -> [f32; 2] {
    match O::ELEMENT {
        Element::F16 => {
            let (low, high): (f32, f32);
            // SAFETY: arithmetic on registers.
            unsafe {
                asm!(
                    "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {p}; cvt.f32.f16 {a}, l; cvt.f32.f16 {b}, h; }}",
                    p = in(reg32) packed, a = out(reg32) low, b = out(reg32) high, options(pure, nomem, nostack)
                )
            };
            [low, high]
        }
        _ => [f32::from_bits(packed << 16), f32::from_bits(packed & 0xFFFF_0000)],
    }
}
