//! Tensor-core multiplication on Hopper, and the accumulator's way to shared memory.

use super::machine::Warpgroup;
use super::matrix::{load_f32x2, load_x4, pack, pack_now, store_f32x2, store_x4, unpack};
use super::thread::{here, settled};
use super::{memory, sync, wgmma};
use crate::config::{Element, ElementType, Major, OperandLayout, OperandTypes, ROW_BYTES, Tile, TileConfig};
use crate::layout::fragment::{f32_pair_at, fragment_coordinates, matrix_x4_at, matrix_x4_offset};
use crate::layout::matrix_descriptor::{advanced, k_major_128, mn_major_128};
use crate::layout::swizzle::{CHUNK_BYTES, swizzle_128};
use crate::machine::{ShareAcc, WarpgroupMma};
use crate::shape::{GlobalAddr, SmemAddr, WARPGROUP_THREADS};

/// Registers of one panel of 16-bit elements in each thread: 64 × 64 elements over 128 threads. A panel of f32 has half
/// as many, the first 16.
const PANEL_REGS: usize = 32;

/// `$e` for each `$i` of 0..32 as a constant, as an array: accumulators take no index known only at run time.
macro_rules! array_32 {
    (|$i:ident| $e:expr) => {
        array_32!(@ $i, $e; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $i:ident, $e:expr; $($n:literal)*) => { [$({ const $i: usize = $n; $e }),*] };
}

/// Bytes that a warpgroup reads or writes at once, 16 a thread.
const CHUNK_STRIDE: u64 = (WARPGROUP_THREADS * CHUNK_BYTES) as u64;

/// Runs `$body` for each `$i` of the list, as a constant.
macro_rules! each {
    ([$($n:literal)*], $i:ident => $body:expr) => {{ $({ const $i: usize = $n; $body })* }};
}

/// Runs `$body` for each `$i` of 0..32, as a constant.
macro_rules! each_32 {
    ($i:ident => $body:expr) => {
        each!([0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31], $i => $body)
    };
}

/// Runs `$body` for each `$i` of 0..64, as a constant.
macro_rules! each_64 {
    ($i:ident => $body:expr) => {
        each!([0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
            41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63], $i => $body)
    };
}

/// Columns of a sum of one stage's products that is to be promoted: those of one wgmma on 8-bit operands.
const PARTIAL_COLS: u32 = 128;
/// Its registers in each thread.
const PARTIAL_REGS: usize = 64;

/// The accumulator's registers in one thread.
pub struct Acc<const REGS: usize> {
    sum: [f32; REGS],
    /// A sum of one stage's products, where these are promoted; not there otherwise, since nothing touches it.
    partial: [f32; PARTIAL_REGS],
}

/// Adds the partial sum to the accumulators of columns `FIRST` and following, `FIRST` in registers. Sums are settled,
/// or the additions would sink behind the next wgmma, and the partial sum would be copied to make room.
#[inline(always)]
unsafe fn promote<const FIRST: usize, const REGS: usize>(acc: &mut Acc<REGS>, accumulate: bool) {
    // SAFETY: the caller's.
    unsafe {
        each_64!(I => wgmma::settle(&mut acc.partial[I]));
        each_64!(I => {
            let before = if accumulate { acc.sum[(FIRST + I) % REGS] } else { 0.0 };
            acc.sum[(FIRST + I) % REGS] = before + acc.partial[I];
        });
        each_64!(I => wgmma::settle(&mut acc.sum[(FIRST + I) % REGS]));
    }
}

/// The low half of a K-major operand's descriptor: the other is the same for all.
#[inline(always)]
fn descriptor_low(addr: u32) -> u32 {
    k_major_128(addr) as u32
}

/// Issues the wgmmas of one stage of 8-bit operands with these low halves of descriptors, for 128 columns of D.
#[inline(always)]
unsafe fn issue_partial<I: OperandTypes>(partial: &mut [f32; PARTIAL_REGS], a: u32, b: u32) {
    // SAFETY: the caller's.
    unsafe {
        wgmma::fence();
        each!([0 1 2 3], STEP => {
            let [a, b] = [a, b].map(|low| advanced(k_major_128(0) | low as u64, STEP as u32 * 32));
            match I::B {
                Element::E5m2 => wgmma::m64n128k32_e4m3_e5m2(partial, a, b, (STEP > 0) as u32),
                _ => wgmma::m64n128k32_e4m3_e4m3(partial, a, b, (STEP > 0) as u32),
            }
        });
        wgmma::commit_group();
    }
}

/// Descriptor of a 16-bit operand at `addr`, `step` wgmmas along K.
#[inline(always)]
fn descriptor(major: Major, addr: u32, step: u32, box_bytes: u32) -> u64 {
    match major {
        Major::K => advanced(k_major_128(addr), step * 32),
        Major::Mn => advanced(mn_major_128(addr, box_bytes), step * 16 * ROW_BYTES),
    }
}

/// Where thread `thread` has register pair `pair` of a panel of f32: two neighbouring columns.
#[inline(always)]
pub(super) fn f32_pair_offset(thread: u32, pair: u32) -> u32 {
    let (row, col) = fragment_coordinates(thread, pair * 2);
    swizzle_128(row, col * 4)
}

macro_rules! warpgroup_mma {
    ($n:literal, $regs:literal, [$($group:literal)*], $bf16:ident, $f16:ident) => {
        impl<const M: u32, const STAGES: u32, L: OperandLayout, I: OperandTypes, O: ElementType, const BUFS: u32>
            WarpgroupMma<Tile<M, $n, STAGES, L, I, O, BUFS>> for Warpgroup
        {
            type Acc = Acc<$regs>;
            type Operands = [u32; 2];
            type Panel = [f32; PANEL_REGS];
            type Rounded = [u32; $regs / 2];

            #[inline(always)]
            fn zero_acc(&self) -> Self::Acc {
                here();
                // SAFETY: zero bits are the float 0. An array literal would become a loop over local memory.
                unsafe { core::mem::zeroed() }
            }

            #[inline(always)]
            fn issue_mma(&self, acc: &mut Self::Acc, a: SmemAddr, b: SmemAddr, accumulate: bool) {
                let (a, b) = (self.cta.at(a), self.cta.at(b));
                if Tile::<M, $n, STAGES, L, I, O>::PROMOTES {
                    let operands = [descriptor_low(a), descriptor_low(b)];
                    return <Self as WarpgroupMma<Tile<M, $n, STAGES, L, I, O, BUFS>>>::issue_mma_at(self, acc, operands, [0; 2], accumulate);
                }
                let acc = &mut acc.sum;
                let a = |step| descriptor(L::A_MAJOR, a, step, Tile::<M, $n, STAGES, L, I, O>::A_BOX.bytes());
                let b = |step| descriptor(L::B_MAJOR, b, step, Tile::<M, $n, STAGES, L, I, O>::B_BOX.bytes());
                // SAFETY: by `Cta::new`'s contract.
                unsafe {
                    wgmma::fence();
                    each!([0 1 2 3], STEP => {
                        let (a, b) = (a(STEP as u32), b(STEP as u32));
                        let accumulate = if STEP == 0 { accumulate as u32 } else { 1 };
                        match (I::A, L::A_MAJOR, L::B_MAJOR) {
                            (Element::F16, Major::K, Major::K) => wgmma::$f16::<0, 0>(acc, a, b, accumulate),
                            (Element::F16, Major::K, Major::Mn) => wgmma::$f16::<0, 1>(acc, a, b, accumulate),
                            (Element::F16, Major::Mn, Major::K) => wgmma::$f16::<1, 0>(acc, a, b, accumulate),
                            (Element::F16, Major::Mn, Major::Mn) => wgmma::$f16::<1, 1>(acc, a, b, accumulate),
                            (_, Major::K, Major::K) => wgmma::$bf16::<0, 0>(acc, a, b, accumulate),
                            (_, Major::K, Major::Mn) => wgmma::$bf16::<0, 1>(acc, a, b, accumulate),
                            (_, Major::Mn, Major::K) => wgmma::$bf16::<1, 0>(acc, a, b, accumulate),
                            (_, Major::Mn, Major::Mn) => wgmma::$bf16::<1, 1>(acc, a, b, accumulate),
                        }
                    });
                    wgmma::commit_group();
                }
            }

            #[inline(always)]
            fn operands(&self, a: SmemAddr, b: SmemAddr) -> Self::Operands {
                [a, b].map(|at| settled(descriptor_low(self.cta.at(at))))
            }

            #[inline(always)]
            fn issue_mma_at(&self, acc: &mut Self::Acc, [a, b]: Self::Operands, _rows: [u32; 2], accumulate: bool) {
                // SAFETY: by `Cta::new`'s contract.
                unsafe {
                    if $n > PARTIAL_COLS {
                        issue_partial::<I>(&mut acc.partial, a, b);
                        wgmma::wait_group::<0>();
                        promote::<0, $regs>(acc, accumulate);
                    }
                    let further = u32::saturating_sub($n, PARTIAL_COLS) * ROW_BYTES;
                    issue_partial::<I>(&mut acc.partial, a, advanced(b as u64, further) as u32);
                }
            }

            #[inline(always)]
            fn wait_mma<const PENDING: u32>(&self, _acc: &mut Self::Acc) {
                // SAFETY: by `Cta::new`'s contract.
                unsafe { wgmma::wait_group::<PENDING>() }
            }

            #[inline(always)]
            fn promote(&self, acc: &mut Self::Acc, accumulate: bool) {
                // SAFETY: reads and writes registers; by contract no wgmma writes these any more.
                unsafe { promote::<{ $regs - if $regs > PARTIAL_REGS { PARTIAL_REGS } else { $regs } }, $regs>(acc, accumulate) }
            }

            #[inline(always)]
            fn scale(&self, acc: &mut Self::Acc, factor: f32) {
                // Only 8-bit operands are scaled, and their tiles are 128 columns wide or more.
                each_64!(I => acc.sum[I % $regs] *= factor);
                if $regs > 64 {
                    each_64!(I => acc.sum[(I + 64) % $regs] *= factor);
                }
            }

            #[inline(always)]
            fn zero_panel(&self) -> Self::Panel {
                // SAFETY: zero bits are the float 0.
                unsafe { core::mem::zeroed() }
            }

            #[inline(always)]
            fn panel<const P: u32>(&self, acc: &Self::Acc) -> Self::Panel {
                let first = Tile::<M, $n, STAGES, L, I, O>::panel_col(P) as usize / 2;
                // The remainder changes nothing for registers that exist, and leaves no bounds check for those that do
                // not.
                array_32!(|I| acc.sum[(first + I) % $regs])
            }

            #[inline(always)]
            fn round(&self, panel: Self::Panel) -> Self::Panel {
                match O::ELEMENT {
                    Element::F32 => panel,
                    _ => array_32!(|I| unpack::<O>(pack::<O>(panel[I / 2 * 2], panel[I / 2 * 2 + 1]))[I % 2]),
                }
            }

            #[inline(always)]
            fn round_acc(&self, acc: &Self::Acc) -> Self::Rounded {
                let mut words = [0; $regs / 2];
                each!([$($group)*], GROUP => each_32!(I => if I % 2 == 0 {
                    let pair = (GROUP * 16 + I / 2) % ($regs / 2);
                    words[pair] = pack_now::<O>(acc.sum[pair * 2], acc.sum[pair * 2 + 1]);
                }));
                words
            }

            #[inline(always)]
            fn rounded_panel<const P: u32>(&self, acc: &Self::Rounded) -> Self::Panel {
                // The remainder: as in `panel`.
                let first = Tile::<M, $n, STAGES, L, I, O>::panel_col(P) as usize / 2;
                array_32!(|I| unpack::<O>(acc[(first + I) / 2 % ($regs / 2)])[I % 2])
            }

            #[inline(always)]
            fn store_rounded<const P: u32>(&self, dst: SmemAddr, acc: &Self::Rounded) {
                let first = Tile::<M, $n, STAGES, L, I, O>::panel_col(P) as usize / 4;
                let dst = self.cta.at(dst);
                // SAFETY: by `Cta::new`'s contract.
                unsafe {
                    each!([0 1 2 3], GROUP => {
                        let word = |i: usize| acc[(first + GROUP * 4 + i) % ($regs / 2)];
                        let words = [word(0), word(1), word(2), word(3)];
                        store_x4(matrix_x4_at(dst + matrix_x4_offset(self.thread, 0), GROUP as u32), words);
                    });
                    sync::fence_proxy_async_shared();
                }
            }

            #[inline(always)]
            fn add_to(&self, sum: &mut Self::Panel, other: &Self::Panel) {
                each_32!(I => sum[I] += other[I]);
            }

            #[inline(always)]
            fn load_panel(&self, src: SmemAddr, _rows: u32) -> Self::Panel {
                let src = self.cta.at(src);
                let panel = match O::ELEMENT {
                    Element::F32 => {
                        let mut panel: Self::Panel = <Self as WarpgroupMma<Tile<M, $n, STAGES, L, I, O, BUFS>>>::zero_panel(self);
                        each!([0 1 2 3 4 5 6 7], PAIR => {
                            // SAFETY: by `Cta::new`'s contract.
                            let [a, b] = unsafe { load_f32x2(f32_pair_at(src + f32_pair_offset(self.thread, 0), PAIR as u32)) };
                            panel[PAIR * 2] = a;
                            panel[PAIR * 2 + 1] = b;
                        });
                        panel
                    }
                    _ => {
                        // SAFETY: by `Cta::new`'s contract.
                        let words =
                            |group| unsafe { load_x4(matrix_x4_at(src + matrix_x4_offset(self.thread, 0), group)) };
                        let words = [words(0), words(1), words(2), words(3)];
                        array_32!(|I| unpack::<O>(words[I / 8][I % 8 / 2])[I % 2])
                    }
                };
                // SAFETY: a fence.
                unsafe { sync::fence_proxy_async_shared() }
                panel
            }

            #[inline(always)]
            fn store_panel(&self, dst: SmemAddr, panel: &Self::Panel) {
                let dst = self.cta.at(dst);
                // SAFETY: by `Cta::new`'s contract.
                unsafe {
                    match O::ELEMENT {
                        Element::F32 => each!([0 1 2 3 4 5 6 7], PAIR => {
                            let pair = [panel[PAIR * 2], panel[PAIR * 2 + 1]];
                            store_f32x2(f32_pair_at(dst + f32_pair_offset(self.thread, 0), PAIR as u32), pair);
                        }),
                        _ => each!([0 1 2 3], GROUP => {
                            let pair = |i: usize| pack::<O>(panel[GROUP * 8 + i], panel[GROUP * 8 + i + 1]);
                            let words = [pair(0), pair(2), pair(4), pair(6)];
                            store_x4(matrix_x4_at(dst + matrix_x4_offset(self.thread, 0), GROUP as u32), words);
                        }),
                    }
                    sync::fence_proxy_async_shared();
                }
            }
        }
    };
}

/// Only tiles whose number of registers is a multiple of 32 are cut; the remainders leave no bounds check for the
/// others.
macro_rules! share_acc {
    ($n:literal, $regs:literal, [$($group:literal)*]) => {
        impl<const M: u32, const STAGES: u32, L: OperandLayout, I: OperandTypes, O: ElementType, const BUFS: u32>
            ShareAcc<Tile<M, $n, STAGES, L, I, O, BUFS>> for Warpgroup
        {
            #[inline(always)]
            fn store_acc(&self, dst: GlobalAddr, acc: &Self::Acc) {
                let dst = dst.0 + (self.thread * CHUNK_BYTES) as u64;
                each!([$($group)*], GROUP => each!([0 1 2 3 4 5 6 7], I => {
                    let word = |i: usize| acc.sum[((GROUP * 8 + I) * 4 + i) % $regs].to_bits();
                    let at = dst + (GROUP * 8 + I) as u64 * CHUNK_STRIDE;
                    // SAFETY: kernels pass addresses of the plan's memory for it, 16-byte aligned.
                    unsafe { memory::store_v4(at, [word(0), word(1), word(2), word(3)]) }
                }));
            }

            #[inline(always)]
            fn add_acc(&self, src: GlobalAddr, acc: &mut Self::Acc) {
                let src = src.0 + (self.thread * CHUNK_BYTES) as u64;
                each!([$($group)*], GROUP => {
                    // SAFETY: as above; the giver's word was acquired.
                    let load = |i: u64| unsafe { memory::load_v4(src + (GROUP as u64 * 8 + i) * CHUNK_STRIDE) };
                    // Eight on their way at once: one after the other, latency would be most of the time.
                    let chunks = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
                    each!([0 1 2 3 4 5 6 7], I => each!([0 1 2 3], WORD => {
                        acc.sum[((GROUP * 8 + I) * 4 + WORD) % $regs] += f32::from_bits(chunks[I][WORD]);
                    }));
                });
            }

            #[inline(always)]
            fn publish(&self, addr: GlobalAddr, value: u32) {
                // SAFETY: as above; the barrier puts every thread's accesses before the release.
                unsafe {
                    sync::sync_warpgroup();
                    if self.thread == 0 {
                        memory::store_release_gpu(addr.0, value);
                    }
                }
            }
        }
    };
}

share_acc!(256, 128, [0 1 2 3]);
share_acc!(192, 96, [0 1 2]);
share_acc!(176, 88, [0 1 2]);
share_acc!(160, 80, [0 1 2]);
share_acc!(144, 72, [0 1 2]);
share_acc!(96, 48, [0 1]);
share_acc!(128, 64, [0 1]);
share_acc!(64, 32, [0]);

warpgroup_mma!(256, 128, [0 1 2 3], m64n256k16_bf16, m64n256k16_f16);
warpgroup_mma!(192, 96, [0 1 2], m64n192k16_bf16, m64n192k16_f16);
warpgroup_mma!(176, 88, [0 1 2], m64n176k16_bf16, m64n176k16_f16);
warpgroup_mma!(160, 80, [0 1 2], m64n160k16_bf16, m64n160k16_f16);
warpgroup_mma!(144, 72, [0 1 2], m64n144k16_bf16, m64n144k16_f16);
warpgroup_mma!(96, 48, [0 1], m64n96k16_bf16, m64n96k16_f16);
warpgroup_mma!(128, 64, [0 1], m64n128k16_bf16, m64n128k16_f16);
warpgroup_mma!(64, 32, [0], m64n64k16_bf16, m64n64k16_f16);
