//! Warpgroup matrix multiplication. By all 128 threads of a warpgroup, converged.

use core::arch::asm;

/// `wgmma.fence`: registers and shared memory before the next wgmma.
#[inline(always)]
pub unsafe fn fence() {
    // SAFETY: the caller's.
    unsafe { asm!("wgmma.fence.sync.aligned;", options(nostack)) }
}

/// `wgmma.commit_group`.
#[inline(always)]
pub unsafe fn commit_group() {
    // SAFETY: the caller's.
    unsafe { asm!("wgmma.commit_group.sync.aligned;", options(nostack)) }
}

/// `wgmma.wait_group`: at most `PENDING` latest groups still run.
#[inline(always)]
pub unsafe fn wait_group<const PENDING: u32>() {
    // SAFETY: the caller's.
    unsafe { asm!("wgmma.wait_group.sync.aligned {};", const PENDING, options(nostack)) }
}

/// Defines `wgmma.mma_async` m64nNk16 on 16-bit elements, f32 accumulators, both operands in shared memory:
/// `d (+)= A · B`, where the old `d` counts only if `accumulate` is not 0. `TA` and `TB` are 1 where the operand is M- or
/// N-major. The list holds the N/2 register indices but the first.
macro_rules! mma_m64k16 {
    ($bf16:ident, $f16:ident, $n:literal, $regs:literal, $indices:tt) => {
        mma_m64k16!(@define $bf16, "bf16", $n, $regs, $indices);
        mma_m64k16!(@define $f16, "f16", $n, $regs, $indices);
    };
    (@define $name:ident, $type:literal, $n:literal, $regs:literal, [$($i:literal)*]) => {
        #[doc = concat!("`wgmma.mma_async.m64n", $n, "k16` on ", $type, "; `a` and `b` are matrix descriptors.")]
        #[inline(always)]
        pub unsafe fn $name<const TA: u32, const TB: u32>(d: &mut [f32; $regs], a: u64, b: u64, accumulate: u32) {
            // SAFETY: the caller's.
            unsafe {
                asm!(
                    concat!(
                        "{{ .reg .pred p; setp.ne.b32 p, {sd}, 0; wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.",
                        $type, ".", $type, " {{{}", $(mma_m64k16!(@reg $i),)* "}}, {da}, {db}, p, 1, 1, {ta}, {tb}; }}"
                    ),
                    inout(reg32) d[0], $(inout(reg32) d[$i],)*
                    da = in(reg64) a, db = in(reg64) b, sd = in(reg32) accumulate, ta = const TA, tb = const TB,
                    options(nostack)
                )
            }
        }
    };
    (@reg $i:literal) => { ", {}" };
}

/// The same for `wgmma.mma_async` m64nNk32 on 8-bit elements, both operands K-major.
macro_rules! mma_m64k32 {
    ($name:ident, $a:literal, $b:literal, $n:literal, $regs:literal, [$($i:literal)*]) => {
        #[doc = concat!("`wgmma.mma_async.m64n", $n, "k32` on ", $a, " and ", $b, "; `a` and `b` are matrix descriptors.")]
        #[inline(always)]
        pub unsafe fn $name(d: &mut [f32; $regs], a: u64, b: u64, accumulate: u32) {
            // SAFETY: the caller's.
            unsafe {
                asm!(
                    concat!(
                        "{{ .reg .pred p; setp.ne.b32 p, {sd}, 0; wgmma.mma_async.sync.aligned.m64n", $n, "k32.f32.",
                        $a, ".", $b, " {{{}", $(mma_m64k16!(@reg $i),)* "}}, {da}, {db}, p, 1, 1; }}"
                    ),
                    inout(reg32) d[0], $(inout(reg32) d[$i],)*
                    da = in(reg64) a, db = in(reg64) b, sd = in(reg32) accumulate,
                    options(nostack)
                )
            }
        }
    };
}

/// Code that reads `register` stays behind this, and code that made it before: as far as the compiler of PTX goes, nothing
/// else keeps arithmetic on one side of a wait or of a wgmma.
#[inline(always)]
pub unsafe fn settle(register: &mut f32) {
    // SAFETY: a comment.
    unsafe { asm!("// settled: {}", inout(reg32) * register, options(nostack)) }
}

mma_m64k16!(m64n256k16_bf16, m64n256k16_f16, "256", 128, [
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43
    44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83
    84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117
    118 119 120 121 122 123 124 125 126 127
]);
/// Hands the 63 register indices after the first of 64 to a macro.
macro_rules! with_64 {
    ($macro:ident, $($args:tt)*) => {
        $macro!($($args)*, [
            1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43
            44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
        ]);
    };
}

with_64!(mma_m64k16, m64n128k16_bf16, m64n128k16_f16, "128", 64);
with_64!(mma_m64k32, m64n128k32_e4m3_e4m3, "e4m3", "e4m3", "128", 64);
with_64!(mma_m64k32, m64n128k32_e4m3_e5m2, "e4m3", "e5m2", "128", 64);
mma_m64k16!(m64n64k16_bf16, m64n64k16_f16, "64", 32, [
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
]);
mma_m64k16!(m64n192k16_bf16, m64n192k16_f16, "192", 96, [
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41
    42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79
    80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
]);
mma_m64k16!(m64n176k16_bf16, m64n176k16_f16, "176", 88, [
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
    78 79 80 81 82 83 84 85 86 87
]);
mma_m64k16!(m64n160k16_bf16, m64n160k16_f16, "160", 80, [
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
    78 79
]);
mma_m64k16!(m64n144k16_bf16, m64n144k16_f16, "144", 72, [
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71
]);
mma_m64k16!(m64n96k16_bf16, m64n96k16_f16, "96", 48, [
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47
]);
