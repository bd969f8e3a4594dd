//! The table of compiled kernels. The builder writes launch bounds and alignments into the PTX from it, and checks the
//! PTX against it; the host loads and launches from it.
#![forbid(unsafe_code)]

use crate::abi::{GemmArgs, GemmReduceScatterArgs, Launch};
use crate::config::{Bf16, Element, F16, F32, Major, Nn, Nt, Tile64x128, Tile128x256, TileConfig, Tn};

/// What an entry computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `D = A · B`.
    Gemm,
    /// `D = A · B`, summed over ranks and scattered.
    GemmReduceScatter,
}

/// One compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the `.entry`: architecture, operand type, op, operand layout, result type, tile.
    pub name: &'static str,
    /// What it computes.
    pub op: Op,
    /// Type of A and B.
    pub input: Element,
    /// Type of D.
    pub output: Element,
    /// How A and B lie in memory.
    pub majors: [Major; 2],
    /// Threads of a CTA, written as `.maxntid`.
    pub threads: u32,
    /// CTAs of a cluster, written as `.reqnctapercluster` when above 1.
    pub cluster: u32,
    /// Dynamic shared memory in bytes.
    pub smem_bytes: u32,
    /// Bytes of the single parameter.
    pub param_bytes: usize,
    /// Alignment of the single parameter, written into the header.
    pub param_align: usize,
    /// Tile rows, tile columns, elements along K of a stage.
    pub tile: [u32; 3],
}

const fn entry<C: TileConfig, Args>(name: &'static str, op: Op) -> Entry {
    Entry {
        name,
        op,
        input: C::IN,
        output: C::OUT,
        majors: [C::A_MAJOR, C::B_MAJOR],
        threads: C::THREADS,
        cluster: 1,
        smem_bytes: C::SMEM.total_bytes,
        param_bytes: size_of::<Launch<Args>>(),
        param_align: 64,
        tile: [C::TILE_M, C::TILE_N, C::TILE_K],
    }
}

/// Calls `$with` with every compiled variant: names of its two entries, tile, stages, operand layout, operand type,
/// result type.
macro_rules! for_each_variant {
    ($with:ident) => {
        $with! {
            sm90_bf16_gemm_nt_bf16_128x256x64, sm90_bf16_gemm_reduce_scatter_nt_bf16_128x256x64, Tile128x256, 3, Nt, Bf16, Bf16;
            sm90_bf16_gemm_nt_f32_128x256x64, sm90_bf16_gemm_reduce_scatter_nt_f32_128x256x64, Tile128x256, 3, Nt, Bf16, F32;
            sm90_bf16_gemm_nn_bf16_128x256x64, sm90_bf16_gemm_reduce_scatter_nn_bf16_128x256x64, Tile128x256, 3, Nn, Bf16, Bf16;
            sm90_bf16_gemm_nn_f32_128x256x64, sm90_bf16_gemm_reduce_scatter_nn_f32_128x256x64, Tile128x256, 3, Nn, Bf16, F32;
            sm90_bf16_gemm_tn_bf16_128x256x64, sm90_bf16_gemm_reduce_scatter_tn_bf16_128x256x64, Tile128x256, 3, Tn, Bf16, Bf16;
            sm90_bf16_gemm_tn_f32_128x256x64, sm90_bf16_gemm_reduce_scatter_tn_f32_128x256x64, Tile128x256, 3, Tn, Bf16, F32;
            sm90_f16_gemm_nt_f16_128x256x64, sm90_f16_gemm_reduce_scatter_nt_f16_128x256x64, Tile128x256, 3, Nt, F16, F16;
            sm90_f16_gemm_nt_f32_128x256x64, sm90_f16_gemm_reduce_scatter_nt_f32_128x256x64, Tile128x256, 3, Nt, F16, F32;
            sm90_f16_gemm_nn_f16_128x256x64, sm90_f16_gemm_reduce_scatter_nn_f16_128x256x64, Tile128x256, 3, Nn, F16, F16;
            sm90_f16_gemm_nn_f32_128x256x64, sm90_f16_gemm_reduce_scatter_nn_f32_128x256x64, Tile128x256, 3, Nn, F16, F32;
            sm90_f16_gemm_tn_f16_128x256x64, sm90_f16_gemm_reduce_scatter_tn_f16_128x256x64, Tile128x256, 3, Tn, F16, F16;
            sm90_f16_gemm_tn_f32_128x256x64, sm90_f16_gemm_reduce_scatter_tn_f32_128x256x64, Tile128x256, 3, Tn, F16, F32;
            sm90_bf16_gemm_nt_bf16_64x128x64, sm90_bf16_gemm_reduce_scatter_nt_bf16_64x128x64, Tile64x128, 8, Nt, Bf16, Bf16;
            sm90_bf16_gemm_nt_f32_64x128x64, sm90_bf16_gemm_reduce_scatter_nt_f32_64x128x64, Tile64x128, 8, Nt, Bf16, F32;
            sm90_f16_gemm_nt_f16_64x128x64, sm90_f16_gemm_reduce_scatter_nt_f16_64x128x64, Tile64x128, 8, Nt, F16, F16;
            sm90_f16_gemm_nt_f32_64x128x64, sm90_f16_gemm_reduce_scatter_nt_f32_64x128x64, Tile64x128, 8, Nt, F16, F32;
        }
    };
}
#[cfg(target_arch = "nvptx64")]
pub(crate) use for_each_variant;

macro_rules! table {
    ($($gemm:ident, $reduce_scatter:ident, $tile:ident, $stages:literal, $layout:ident, $input:ident, $output:ident;)*) => {
        /// Every compiled kernel.
        pub const ENTRIES: &[Entry] = &[
            $(
                entry::<$tile<$layout, $input, $output>, GemmArgs>(stringify!($gemm), Op::Gemm),
                entry::<$tile<$layout, $input, $output>, GemmReduceScatterArgs>(
                    stringify!($reduce_scatter),
                    Op::GemmReduceScatter,
                ),
            )*
        ];
    };
}
for_each_variant!(table);

/// The entry of `op` for a configuration, if it was compiled.
pub fn find<C: TileConfig>(op: Op) -> Option<&'static Entry> {
    ENTRIES.iter().find(|e| {
        e.op == op
            && (e.input, e.output) == (C::IN, C::OUT)
            && e.majors == [C::A_MAJOR, C::B_MAJOR]
            && e.tile == [C::TILE_M, C::TILE_N, C::TILE_K]
    })
}
