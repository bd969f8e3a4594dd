//! Tensor-core multiplication on Hopper, and the accumulator's way to shared memory.

use super::machine::Warpgroup;
use super::{matrix, sync, wgmma};
use crate::config::{ROW_BYTES, Tile};
use crate::layout::{fragment::matrix_x4_offset, matrix_descriptor::k_major_128};
use crate::machine::WarpgroupMma;
use crate::shape::SmemAddr;

/// Registers of one panel in each thread: 64 × 64 elements over 128 threads.
const PANEL_REGS: usize = 32;

/// Bytes along K of one wgmma: 16 elements of 16 bits.
const K_STEP_BYTES: u32 = 32;

/// `$e` for each `$i` of 0..32 as a constant, as an array: accumulators take no index known only at run time.
macro_rules! array_32 {
    (|$i:ident| $e:expr) => {
        array_32!(@ $i, $e; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $i:ident, $e:expr; $($n:literal)*) => { [$({ const $i: usize = $n; $e }),*] };
}

/// Runs `$body` for each group of an `x4` matrix instruction, with `$g` constant.
macro_rules! each_group {
    ($g:ident => $body:expr) => {{
        {
            const $g: usize = 0;
            $body
        }
        {
            const $g: usize = 1;
            $body
        }
        {
            const $g: usize = 2;
            $body
        }
        {
            const $g: usize = 3;
            $body
        }
    }};
}

macro_rules! warpgroup_mma {
    ($n:literal, $regs:literal, $wgmma:path) => {
        impl<const M: u32, const STAGES: u32> WarpgroupMma<Tile<M, $n, STAGES>> for Warpgroup {
            type Acc = [f32; $regs];
            type Panel = [f32; PANEL_REGS];

            #[inline(always)]
            fn zero_acc(&self) -> Self::Acc {
                // SAFETY: zero bits are the float 0. An array literal would become a loop over local memory.
                unsafe { core::mem::zeroed() }
            }

            #[inline(always)]
            fn issue_mma(&self, acc: &mut Self::Acc, a: SmemAddr, b: SmemAddr, accumulate: bool) {
                let (a, b) = (self.cta.at(a), self.cta.at(b));
                const { assert!(ROW_BYTES == 4 * K_STEP_BYTES, "a stage is four steps along K") };
                // SAFETY: by `Cta::new`'s contract.
                unsafe {
                    wgmma::fence();
                    $wgmma(acc, k_major_128(a), k_major_128(b), accumulate as u32);
                    $wgmma(acc, k_major_128(a + K_STEP_BYTES), k_major_128(b + K_STEP_BYTES), 1);
                    $wgmma(acc, k_major_128(a + 2 * K_STEP_BYTES), k_major_128(b + 2 * K_STEP_BYTES), 1);
                    $wgmma(acc, k_major_128(a + 3 * K_STEP_BYTES), k_major_128(b + 3 * K_STEP_BYTES), 1);
                    wgmma::commit_group();
                }
            }

            #[inline(always)]
            fn wait_mma<const PENDING: u32>(&self, _acc: &mut Self::Acc) {
                // SAFETY: by `Cta::new`'s contract.
                unsafe { wgmma::wait_group::<PENDING>() }
            }

            #[inline(always)]
            fn zero_panel(&self) -> Self::Panel {
                // SAFETY: zero bits are the float 0.
                unsafe { core::mem::zeroed() }
            }

            #[inline(always)]
            fn panel<const P: u32>(&self, acc: &Self::Acc) -> Self::Panel {
                // The remainder changes nothing for panels that exist, and leaves no bounds check for those that do not.
                array_32!(|I| acc[(P as usize * PANEL_REGS + I) % $regs])
            }

            #[inline(always)]
            fn round(&self, panel: Self::Panel) -> Self::Panel {
                array_32!(|I| matrix::unpack_bf16x2(matrix::pack_bf16x2(panel[I], panel[I]))[0])
            }

            #[inline(always)]
            fn add(&self, left: Self::Panel, right: &Self::Panel) -> Self::Panel {
                array_32!(|I| left[I] + right[I])
            }

            #[inline(always)]
            fn load_panel(&self, src: SmemAddr, _rows: u32) -> Self::Panel {
                let src = self.cta.at(src);
                // SAFETY: by `Cta::new`'s contract.
                let words = |group| unsafe { matrix::load_x4(src + matrix_x4_offset(self.thread, group)) };
                let (a, b, c, d) = (words(0), words(1), words(2), words(3));
                let words = [a, b, c, d];
                array_32!(|I| matrix::unpack_bf16x2(words[I / 8][I % 8 / 2])[I % 2])
            }

            #[inline(always)]
            fn store_panel(&self, dst: SmemAddr, panel: &Self::Panel) {
                let dst = self.cta.at(dst);
                // SAFETY: by `Cta::new`'s contract.
                unsafe {
                    each_group!(G => {
                        let pair = |i: usize| matrix::pack_bf16x2(panel[G * 8 + i], panel[G * 8 + i + 1]);
                        let words = [pair(0), pair(2), pair(4), pair(6)];
                        matrix::store_x4(dst + matrix_x4_offset(self.thread, G as u32), words);
                    });
                    sync::fence_proxy_async_shared();
                }
            }
        }
    };
}

warpgroup_mma!(256, 128, wgmma::m64n256k16);
warpgroup_mma!(128, 64, wgmma::m64n128k16);
