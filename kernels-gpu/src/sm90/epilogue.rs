//! Epilogues on Hopper: values in registers, the bias through the cache.

use core::arch::asm;

use super::machine::Warpgroup;
use super::matrix::{load_f32x2, load_x4, pack, store_f32x2, store_x4, unpack};
use super::mma::f32_pair_offset;
use super::{memory, sync};
use crate::abi::Activation;
use crate::config::{Element, ElementType, OperandLayout, OperandTypes, Tile};
use crate::finish::{Arithmetic, Finish, gated, gelu_erf, relu};
use crate::layout::fragment::{fragment_coordinates, matrix_x4_offset};
use crate::machine::{Epilogue, WarpgroupMma};
use crate::shape::{GlobalAddr, SmemAddr};

/// The GPU's own instructions.
pub struct Approximate;

impl Arithmetic for Approximate {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let r: f32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("fma.rn.f32 {}, {}, {}, {};", out(reg32) r, in(reg32) a, in(reg32) b, in(reg32) c, options(pure, nomem, nostack))
        };
        r
    }

    #[inline(always)]
    fn exp2(x: f32) -> f32 {
        let r: f32;
        // SAFETY: arithmetic on registers.
        unsafe { asm!("ex2.approx.ftz.f32 {}, {};", out(reg32) r, in(reg32) x, options(pure, nomem, nostack)) };
        r
    }

    #[inline(always)]
    fn recip(x: f32) -> f32 {
        let r: f32;
        // SAFETY: arithmetic on registers.
        unsafe { asm!("rcp.approx.ftz.f32 {}, {};", out(reg32) r, in(reg32) x, options(pure, nomem, nostack)) };
        r
    }
}

/// Values that are finished at once: what one `ldmatrix.x4` brings a thread.
pub(super) type Values = [f32; 8];

/// The array of `$e` for each index `$i`, a constant: registers take no other.
macro_rules! array_8 {
    (|$i:ident| $e:expr) => { array_8!(@ $i, $e; 0 1 2 3 4 5 6 7) };
    (@ $i:ident, $e:expr; $($n:literal)*) => { [$({ const $i: usize = $n; $e }),*] };
}
pub(super) use array_8;

/// `value`, unknown to the compiler: a loop up to it is not unrolled, and what is computed from it is computed here, not
/// kept in registers through the main loop.
#[inline(always)]
pub(super) fn opaque(value: u32) -> u32 {
    let same: u32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("mov.u32 {}, {};", out(reg32) same, in(reg32) value, options(nomem, nostack)) };
    same
}

/// Two neighbouring elements of `O` at `addr`, of which `exist` exist; others are 0. No branch: lanes stay together.
///
/// # Safety
/// What exists can be read.
#[inline(always)]
pub(super) unsafe fn load_pair<O: ElementType>(addr: u64, exist: u32) -> [f32; 2] {
    // SAFETY: the caller's.
    unsafe {
        match O::ELEMENT {
            Element::F32 => [
                f32::from_bits(memory::load_u32_if(addr, exist >= 1)),
                f32::from_bits(memory::load_u32_if(addr + 4, exist >= 2)),
            ],
            _ => unpack::<O>(memory::load_u32_if(addr, exist >= 2) | memory::load_u16_if(addr, exist == 1)),
        }
    }
}

impl<const M: u32, const N: u32, const STAGES: u32, L: OperandLayout, I: OperandTypes, O: ElementType, const BUFS: u32>
    Epilogue<Tile<M, N, STAGES, L, I, O, BUFS>> for Warpgroup
where
    Self: WarpgroupMma<Tile<M, N, STAGES, L, I, O, BUFS>, Panel = [f32; 32]>,
{
    #[inline(always)]
    fn load_f32(&self, addr: GlobalAddr) -> f32 {
        // SAFETY: the host passes the address of an f32, or 0, which kernels do not load.
        f32::from_bits(unsafe { memory::load_u32(addr.0) })
    }

    #[inline(always)]
    fn finish(&self, panel: [f32; 32], buffer: SmemAddr, _rows: u32, how: &Finish) {
        let buffer = self.cta.at(buffer);
        let thread = opaque(self.thread);
        let (_, first_col) = fragment_coordinates(thread, 0);
        // Registers 4i, 4i + 1 and 4i + 2, 4i + 3 are columns 8i and 8i + 1 after the first, in two rows.
        let pair = |i: u32| {
            let col = first_col + i * 8;
            let exist = how.cols.saturating_sub(col);
            // SAFETY: columns that exist have a bias.
            unsafe { load_pair::<O>(how.bias.0 + (col * O::ELEMENT.bytes()) as u64, exist) }
        };
        let group = |group: u32, values: Values| {
            let bias = || {
                let pairs = [pair(group * 2), pair(group * 2 + 1)];
                array_8!(|I| pairs[I / 4][I % 2])
            };
            // SAFETY: by `Cta::new`'s contract.
            unsafe {
                match O::ELEMENT {
                    Element::F32 => {
                        let at = |i: u32| buffer + f32_pair_offset(thread, group * 4 + i);
                        let mut other = [[0.0; 2]; 4];
                        if how.has_other() {
                            other = [load_f32x2(at(0)), load_f32x2(at(1)), load_f32x2(at(2)), load_f32x2(at(3))];
                        }
                        let v = apply(values, &array_8!(|I| other[I / 2][I % 2]), bias, how);
                        store_f32x2(at(0), [v[0], v[1]]);
                        store_f32x2(at(1), [v[2], v[3]]);
                        store_f32x2(at(2), [v[4], v[5]]);
                        store_f32x2(at(3), [v[6], v[7]]);
                    }
                    _ => {
                        let at = buffer + matrix_x4_offset(thread, group);
                        let words = if how.has_other() { load_x4(at) } else { [0; 4] };
                        let v = apply(values, &array_8!(|I| unpack::<O>(words[I / 2])[I % 2]), bias, how);
                        let words = [
                            pack::<O>(v[0], v[1]),
                            pack::<O>(v[2], v[3]),
                            pack::<O>(v[4], v[5]),
                            pack::<O>(v[6], v[7]),
                        ];
                        store_x4(at, words);
                    }
                }
            }
        };
        // A loop, so that the arithmetic is there once: a kernel has a panel's code up to eight times.
        let (mut idx, groups) = (0, opaque(8 / O::ELEMENT.bytes()));
        while idx < groups {
            let values = match idx {
                0 => array_8!(|I| panel[I]),
                2 if O::ELEMENT.bytes() == 2 => array_8!(|I| panel[16 + I]),
                3 if O::ELEMENT.bytes() == 2 => array_8!(|I| panel[24 + I]),
                _ => array_8!(|I| panel[8 + I]),
            };
            group(idx, values);
            idx += 1;
        }
        // SAFETY: a fence.
        unsafe { sync::fence_proxy_async_shared() }
    }
}

/// Values with their epilogue: alike wherever partials are added, so that the bits are the same.
#[inline(always)]
pub(super) fn apply(values: Values, other: &Values, bias: impl Fn() -> Values, how: &Finish) -> Values {
    let mut v = array_8!(|I| values[I] * how.alpha);
    if how.adds_c() {
        v = array_8!(|I| Approximate::fma(how.beta, other[I], v[I]));
    }
    if how.has_bias() {
        let bias = bias();
        v = array_8!(|I| v[I] + bias[I]);
    }
    v = activate(v, how.activation);
    if how.adds_residual() {
        v = array_8!(|I| v[I] + other[I]);
    }
    v
}

#[inline(always)]
fn activate(v: Values, activation: u32) -> Values {
    if activation == Activation::None as u32 {
        v
    } else if activation == Activation::Relu as u32 {
        array_8!(|I| relu(v[I]))
    } else if activation == Activation::GeluErf as u32 {
        array_8!(|I| gelu_erf::<Approximate>(v[I]))
    } else {
        let is_gelu = activation == Activation::GeluTanh as u32;
        array_8!(|I| gated::<Approximate>(v[I], is_gelu))
    }
}
