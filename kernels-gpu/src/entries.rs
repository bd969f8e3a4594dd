//! The table of compiled kernels. The builder writes launch bounds and alignments into the PTX from it, and checks the
//! PTX against it; the host loads and launches from it.
#![forbid(unsafe_code)]

use crate::abi::{GemmArgs, GemmReduceScatterArgs, Launch};
use crate::config::{Tile128x256, TileConfig};

/// One compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the `.entry`: architecture, type, op, tile.
    pub name: &'static str,
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

const fn entry<C: TileConfig, Args>(name: &'static str) -> Entry {
    Entry {
        name,
        threads: C::THREADS,
        cluster: 1,
        smem_bytes: C::SMEM.total_bytes,
        param_bytes: size_of::<Launch<Args>>(),
        param_align: 64,
        tile: [C::TILE_M, C::TILE_N, C::TILE_K],
    }
}

/// Plain GEMM, 128×256×64.
pub const GEMM_128X256: Entry = entry::<Tile128x256, GemmArgs>("sm90_bf16_gemm_128x256x64");
/// GEMM + ReduceScatter, 128×256×64.
pub const GEMM_REDUCE_SCATTER_128X256: Entry =
    entry::<Tile128x256, GemmReduceScatterArgs>("sm90_bf16_gemm_reduce_scatter_128x256x64");

/// Every compiled kernel.
pub const ENTRIES: &[Entry] = &[GEMM_128X256, GEMM_REDUCE_SCATTER_128X256];
