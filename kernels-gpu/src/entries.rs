//! The table of compiled kernels. The builder writes launch bounds and alignments into the PTX from it, and checks the
//! PTX against it; the host loads and launches from it.
#![forbid(unsafe_code)]

use crate::abi::{Launch, LinkArgs};
// The rows name tiles, layouts and types of it.
use crate::config::*;
use crate::kernels::Kernel;
use crate::kernels::few_rows_epilogue::{FewRowsReduceScatterEpilogue, LowLatencyReduceScatterEpilogue};
use crate::kernels::few_rows_reduce_scatter::FewRowsReduceScatter;
use crate::kernels::gemm::Gemm;
use crate::kernels::gemm_epilogue::GemmEpilogue;
use crate::kernels::gemm_ping_pong::GemmPingPong;
use crate::kernels::gemm_reduce_scatter::{FewTilesReduceScatter, GemmReduceScatter};
use crate::kernels::gemm_reduce_scatter_epilogue::GemmReduceScatterEpilogue;
use crate::kernels::gemm_reduce_scatter_ping_pong::GemmReduceScatterPingPong;
use crate::kernels::low_latency_reduce_scatter::LowLatencyReduceScatter;

/// What an entry computes; named as its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `D = A · B`.
    Gemm,
    /// The same; the consumers take turns at whole tiles.
    GemmPingPong,
    /// `D = A · B`, summed over ranks and scattered.
    GemmReduceScatter,
    /// The same; the consumers take turns at whole tiles.
    GemmReduceScatterPingPong,
    /// [`Op::GemmReduceScatter`] for calls in which no CTA has a second tile.
    FewTilesReduceScatter,
    /// `D = act(alpha · (A · B) + beta · C + bias) + residual`.
    GemmEpilogue,
    /// The same of the sum over ranks, scattered.
    GemmReduceScatterEpilogue,
    /// The same for few rows: tiles hold the rows of every owner.
    FewRowsReduceScatter,
    /// The same, where every element goes from registers to its owner's registers.
    LowLatencyReduceScatter,
    /// [`Op::FewRowsReduceScatter`] with an epilogue on the sum.
    FewRowsReduceScatterEpilogue,
    /// [`Op::LowLatencyReduceScatter`] with an epilogue on the sum.
    LowLatencyReduceScatterEpilogue,
    /// Copies and signals over a link; no operands, so that types and layouts of its entry mean nothing.
    Link,
}

/// One compiled kernel, with what the host must know of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the `.entry`: architecture, operand type (both where they differ), op, operand layout, result type, tile.
    pub name: &'static str,
    /// What it computes.
    pub op: Op,
    /// Type of A.
    pub input: Element,
    /// Type of B.
    pub input_b: Element,
    /// Type of D.
    pub output: Element,
    /// How A and B lie in memory.
    pub majors: [Major; 2],
    /// Threads of a CTA, written as `.maxntid`.
    pub threads: u32,
    /// Whether it can cut tiles along K (plain products).
    pub splits: bool,
    /// Whether it may start before the kernel ahead of it in its stream has ended.
    pub overlaps_previous: bool,
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
    /// Boxes of the tensor maps of A, B and D.
    pub boxes: [TileBox; 3],
    /// Bytes one tile takes in a slot.
    pub slot_tile_bytes: u32,
    /// Tiles of D start at rows that are multiples of this.
    pub row_align: u32,
}

impl Entry {
    /// Rows and columns of a tile of D.
    pub const fn tile_extent(&self) -> [u32; 2] {
        [self.tile[0], self.tile[1]]
    }
}

const fn entry_of<K: Kernel>(name: &'static str, op: Op) -> Entry {
    const { assert!(K::REGISTERS.fit(K::Config::CONSUMERS), "setmaxnreg totals exceed the register file") };
    Entry { overlaps_previous: K::OVERLAPS_PREVIOUS, ..entry::<K::Config, K::Args>(name, op) }
}

const fn entry<C: TileConfig, Args>(name: &'static str, op: Op) -> Entry {
    let () = C::CHECKED;
    Entry {
        name,
        op,
        input: C::IN,
        input_b: C::IN_B,
        output: C::OUT,
        majors: [C::A_MAJOR, C::B_MAJOR],
        threads: C::THREADS,
        splits: matches!(op, Op::Gemm | Op::GemmEpilogue) && C::SPLITS,
        overlaps_previous: false,
        cluster: 1,
        smem_bytes: C::SMEM.total_bytes,
        param_bytes: size_of::<Launch<Args>>(),
        param_align: 64,
        tile: [C::TILE_M, C::TILE_N, C::TILE_K],
        boxes: [C::A_BOX, C::B_BOX, C::D_BOX],
        slot_tile_bytes: C::SLOT_TILE_BYTES,
        row_align: C::ROW_ALIGN,
    }
}

/// Threads of a CTA of the link kernel.
pub const LINK_THREADS: u32 = 512;

/// The link kernel, which is no [`Kernel`] with roles and so stands beside the table. Its shared memory
/// is the plan of the smaller tile, whose barriers it takes for its buffers.
pub const LINK: Entry = Entry { threads: LINK_THREADS, ..entry::<Tile64x128, LinkArgs>("sm90_link", Op::Link) };

/// Calls `$with` with every compiled kernel: one block for each type of arguments, one row an entry. A row has the entry's
/// name, the kernel (a type of [`crate::kernels`] and the [`Op`] of the same name) and the tile configuration. All that
/// lists kernels comes from these rows: [`ENTRIES`], the device's entry points, and the host's
/// [`dispatch`](crate::kernels::dispatch).
macro_rules! for_each_entry {
    ($with:ident) => {
        $with! {
            GemmArgs {
                sm90_bf16_gemm_nt_bf16_128x256x64: Gemm, Few128x256<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_nt_f32_128x256x64: Gemm, Few128x256<Nt, Bf16, F32>;
                sm90_bf16_gemm_nn_bf16_128x256x64: Gemm, Few128x256<Nn, Bf16, Bf16>;
                sm90_bf16_gemm_nn_f32_128x256x64: Gemm, Few128x256<Nn, Bf16, F32>;
                sm90_bf16_gemm_tn_bf16_128x256x64: Gemm, Few128x256<Tn, Bf16, Bf16>;
                sm90_bf16_gemm_tn_f32_128x256x64: Gemm, Few128x256<Tn, Bf16, F32>;
                sm90_f16_gemm_nt_f16_128x256x64: Gemm, Few128x256<Nt, F16, F16>;
                sm90_f16_gemm_nt_f32_128x256x64: Gemm, Few128x256<Nt, F16, F32>;
                sm90_f16_gemm_nn_f16_128x256x64: Gemm, Few128x256<Nn, F16, F16>;
                sm90_f16_gemm_nn_f32_128x256x64: Gemm, Few128x256<Nn, F16, F32>;
                sm90_f16_gemm_tn_f16_128x256x64: Gemm, Few128x256<Tn, F16, F16>;
                sm90_f16_gemm_tn_f32_128x256x64: Gemm, Few128x256<Tn, F16, F32>;
                sm90_bf16_gemm_nt_bf16_64x128x64: Gemm, Few64x128<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_nt_f32_64x128x64: Gemm, Few64x128<Nt, Bf16, F32>;
                sm90_f16_gemm_nt_f16_64x128x64: Gemm, Few64x128<Nt, F16, F16>;
                sm90_f16_gemm_nt_f32_64x128x64: Gemm, Few64x128<Nt, F16, F32>;
                sm90_bf16_gemm_nt_f16_128x256x64: Gemm, Few128x256<Nt, Bf16, F16>;
                sm90_f16_gemm_nt_bf16_128x256x64: Gemm, Few128x256<Nt, F16, Bf16>;
                sm90_bf16_gemm_nn_f16_128x256x64: Gemm, Few128x256<Nn, Bf16, F16>;
                sm90_f16_gemm_nn_bf16_128x256x64: Gemm, Few128x256<Nn, F16, Bf16>;
                sm90_bf16_gemm_tn_f16_128x256x64: Gemm, Few128x256<Tn, Bf16, F16>;
                sm90_f16_gemm_tn_bf16_128x256x64: Gemm, Few128x256<Tn, F16, Bf16>;
                sm90_bf16_gemm_nt_f16_64x128x64: Gemm, Few64x128<Nt, Bf16, F16>;
                sm90_f16_gemm_nt_bf16_64x128x64: Gemm, Few64x128<Nt, F16, Bf16>;
                sm90_bf16_gemm_nt_bf16_64x64x64: Gemm, Few64x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_nt_f32_64x64x64: Gemm, Few64x64<Nt, Bf16, F32>;
                sm90_f16_gemm_nt_f16_64x64x64: Gemm, Few64x64<Nt, F16, F16>;
                sm90_f16_gemm_nt_f32_64x64x64: Gemm, Few64x64<Nt, F16, F32>;
                sm90_bf16_gemm_nt_bf16_128x64x64: Gemm, Few128x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_nt_f32_128x64x64: Gemm, Few128x64<Nt, Bf16, F32>;
                sm90_f16_gemm_nt_f16_128x64x64: Gemm, Few128x64<Nt, F16, F16>;
                sm90_f16_gemm_nt_f32_128x64x64: Gemm, Few128x64<Nt, F16, F32>;
                sm90_bf16_gemm_nt_bf16_128x128x64: Gemm, Few128x128<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_nt_f32_128x128x64: Gemm, Few128x128<Nt, Bf16, F32>;
                sm90_f16_gemm_nt_f16_128x128x64: Gemm, Few128x128<Nt, F16, F16>;
                sm90_f16_gemm_nt_f32_128x128x64: Gemm, Few128x128<Nt, F16, F32>;
                sm90_bf16_gemm_nn_bf16_128x128x64: Gemm, Few128x128<Nn, Bf16, Bf16>;
                sm90_f16_gemm_nn_f16_128x128x64: Gemm, Few128x128<Nn, F16, F16>;
                sm90_bf16_gemm_tn_bf16_128x128x64: Gemm, Few128x128<Tn, Bf16, Bf16>;
                sm90_f16_gemm_tn_f16_128x128x64: Gemm, Few128x128<Tn, F16, F16>;
                sm90_bf16_gemm_nt_bf16_128x144x64: Gemm, Few128x144<Nt, Bf16, Bf16>;
                sm90_f16_gemm_nt_f16_128x144x64: Gemm, Few128x144<Nt, F16, F16>;
                sm90_bf16_gemm_nt_bf16_128x96x64: Gemm, Few128x96<Nt, Bf16, Bf16>;
                sm90_f16_gemm_nt_f16_128x96x64: Gemm, Few128x96<Nt, F16, F16>;
                sm90_bf16_gemm_nt_bf16_64x192x64: Gemm, Few64x192<Nt, Bf16, Bf16>;
                sm90_f16_gemm_nt_f16_64x192x64: Gemm, Few64x192<Nt, F16, F16>;
                sm90_bf16_gemm_nt_bf16_64x96x64: Gemm, Few64x96<Nt, Bf16, Bf16>;
                sm90_f16_gemm_nt_f16_64x96x64: Gemm, Few64x96<Nt, F16, F16>;
                sm90_bf16_gemm_ping_pong_nt_bf16_128x176x64: GemmPingPong, Tile128x176<Nt, Bf16, Bf16>;
                sm90_f16_gemm_ping_pong_nt_f16_128x176x64: GemmPingPong, Tile128x176<Nt, F16, F16>;
                sm90_bf16_gemm_ping_pong_nt_bf16_128x160x64: GemmPingPong, Tile128x160<Nt, Bf16, Bf16>;
                sm90_f16_gemm_ping_pong_nt_f16_128x160x64: GemmPingPong, Tile128x160<Nt, F16, F16>;
                sm90_e4m3_gemm_nt_bf16_128x256x128: Gemm, Tile128x256<Nt, E4m3, Bf16>;
                sm90_e4m3_gemm_nt_f16_128x256x128: Gemm, Tile128x256<Nt, E4m3, F16>;
                sm90_e4m3_gemm_nt_f32_128x256x128: Gemm, Tile128x256<Nt, E4m3, F32>;
                sm90_e4m3_e5m2_gemm_nt_bf16_128x256x128: Gemm, Tile128x256<Nt, Pair<E4m3, E5m2>, Bf16>;
                sm90_e4m3_e5m2_gemm_nt_f16_128x256x128: Gemm, Tile128x256<Nt, Pair<E4m3, E5m2>, F16>;
                sm90_e4m3_e5m2_gemm_nt_f32_128x256x128: Gemm, Tile128x256<Nt, Pair<E4m3, E5m2>, F32>;
                sm90_e4m3_gemm_nt_bf16_128x128x128: Gemm, Tile128x128<Nt, E4m3, Bf16>;
                sm90_e4m3_gemm_nt_f16_128x128x128: Gemm, Tile128x128<Nt, E4m3, F16>;
                sm90_e4m3_gemm_nt_f32_128x128x128: Gemm, Tile128x128<Nt, E4m3, F32>;
                sm90_e4m3_e5m2_gemm_nt_bf16_128x128x128: Gemm, Tile128x128<Nt, Pair<E4m3, E5m2>, Bf16>;
                sm90_e4m3_e5m2_gemm_nt_f16_128x128x128: Gemm, Tile128x128<Nt, Pair<E4m3, E5m2>, F16>;
                sm90_e4m3_e5m2_gemm_nt_f32_128x128x128: Gemm, Tile128x128<Nt, Pair<E4m3, E5m2>, F32>;
                sm90_bf16_gemm_ping_pong_nt_bf16_128x192x64: GemmPingPong, Tile128x192<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_ping_pong_nn_bf16_128x192x64: GemmPingPong, Tile128x192<Nn, Bf16, Bf16>;
                sm90_bf16_gemm_ping_pong_tn_bf16_128x192x64: GemmPingPong, Tile128x192<Tn, Bf16, Bf16>;
                sm90_f16_gemm_ping_pong_nt_f16_128x192x64: GemmPingPong, Tile128x192<Nt, F16, F16>;
                sm90_f16_gemm_ping_pong_nn_f16_128x192x64: GemmPingPong, Tile128x192<Nn, F16, F16>;
                sm90_f16_gemm_ping_pong_tn_f16_128x192x64: GemmPingPong, Tile128x192<Tn, F16, F16>;
            }
            GemmReduceScatterArgs {
                sm90_bf16_gemm_reduce_scatter_nt_bf16_128x256x64: GemmReduceScatter, Tile128x256<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_nt_f32_128x256x64: GemmReduceScatter, Tile128x256<Nt, Bf16, F32>;
                sm90_bf16_gemm_reduce_scatter_nn_bf16_128x256x64: GemmReduceScatter, Tile128x256<Nn, Bf16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_nn_f32_128x256x64: GemmReduceScatter, Tile128x256<Nn, Bf16, F32>;
                sm90_bf16_gemm_reduce_scatter_tn_bf16_128x256x64: GemmReduceScatter, Tile128x256<Tn, Bf16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_tn_f32_128x256x64: GemmReduceScatter, Tile128x256<Tn, Bf16, F32>;
                sm90_f16_gemm_reduce_scatter_nt_f16_128x256x64: GemmReduceScatter, Tile128x256<Nt, F16, F16>;
                sm90_f16_gemm_reduce_scatter_nt_f32_128x256x64: GemmReduceScatter, Tile128x256<Nt, F16, F32>;
                sm90_f16_gemm_reduce_scatter_nn_f16_128x256x64: GemmReduceScatter, Tile128x256<Nn, F16, F16>;
                sm90_f16_gemm_reduce_scatter_nn_f32_128x256x64: GemmReduceScatter, Tile128x256<Nn, F16, F32>;
                sm90_f16_gemm_reduce_scatter_tn_f16_128x256x64: GemmReduceScatter, Tile128x256<Tn, F16, F16>;
                sm90_f16_gemm_reduce_scatter_tn_f32_128x256x64: GemmReduceScatter, Tile128x256<Tn, F16, F32>;
                sm90_bf16_gemm_reduce_scatter_nt_bf16_64x128x64: GemmReduceScatter, Tile64x128<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_nt_f32_64x128x64: GemmReduceScatter, Tile64x128<Nt, Bf16, F32>;
                sm90_f16_gemm_reduce_scatter_nt_f16_64x128x64: GemmReduceScatter, Tile64x128<Nt, F16, F16>;
                sm90_f16_gemm_reduce_scatter_nt_f32_64x128x64: GemmReduceScatter, Tile64x128<Nt, F16, F32>;
                sm90_bf16_gemm_reduce_scatter_nt_f16_128x256x64: GemmReduceScatter, Tile128x256<Nt, Bf16, F16>;
                sm90_f16_gemm_reduce_scatter_nt_bf16_128x256x64: GemmReduceScatter, Tile128x256<Nt, F16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_nn_f16_128x256x64: GemmReduceScatter, Tile128x256<Nn, Bf16, F16>;
                sm90_f16_gemm_reduce_scatter_nn_bf16_128x256x64: GemmReduceScatter, Tile128x256<Nn, F16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_tn_f16_128x256x64: GemmReduceScatter, Tile128x256<Tn, Bf16, F16>;
                sm90_f16_gemm_reduce_scatter_tn_bf16_128x256x64: GemmReduceScatter, Tile128x256<Tn, F16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_nt_f16_64x128x64: GemmReduceScatter, Tile64x128<Nt, Bf16, F16>;
                sm90_f16_gemm_reduce_scatter_nt_bf16_64x128x64: GemmReduceScatter, Tile64x128<Nt, F16, Bf16>;
                sm90_e4m3_gemm_reduce_scatter_nt_bf16_128x128x128: GemmReduceScatter, Tile128x128<Nt, E4m3, Bf16>;
                sm90_e4m3_gemm_reduce_scatter_nt_f16_128x128x128: GemmReduceScatter, Tile128x128<Nt, E4m3, F16>;
                sm90_e4m3_gemm_reduce_scatter_nt_f32_128x128x128: GemmReduceScatter, Tile128x128<Nt, E4m3, F32>;
                sm90_e4m3_e5m2_gemm_reduce_scatter_nt_bf16_128x128x128: GemmReduceScatter, Tile128x128<Nt, Pair<E4m3, E5m2>, Bf16>;
                sm90_e4m3_e5m2_gemm_reduce_scatter_nt_f16_128x128x128: GemmReduceScatter, Tile128x128<Nt, Pair<E4m3, E5m2>, F16>;
                sm90_e4m3_e5m2_gemm_reduce_scatter_nt_f32_128x128x128: GemmReduceScatter, Tile128x128<Nt, Pair<E4m3, E5m2>, F32>;
                sm90_bf16_gemm_few_tiles_reduce_scatter_nt_bf16_128x256x64: FewTilesReduceScatter, Few128x256<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_few_tiles_reduce_scatter_nt_f32_128x256x64: FewTilesReduceScatter, Few128x256<Nt, Bf16, F32>;
                sm90_f16_gemm_few_tiles_reduce_scatter_nt_f16_128x256x64: FewTilesReduceScatter, Few128x256<Nt, F16, F16>;
                sm90_f16_gemm_few_tiles_reduce_scatter_nt_f32_128x256x64: FewTilesReduceScatter, Few128x256<Nt, F16, F32>;
                sm90_bf16_gemm_few_rows_reduce_scatter_nt_bf16_64x64x64: FewRowsReduceScatter, Few64x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_few_rows_reduce_scatter_nt_f32_64x64x64: FewRowsReduceScatter, Few64x64<Nt, Bf16, F32>;
                sm90_f16_gemm_few_rows_reduce_scatter_nt_f16_64x64x64: FewRowsReduceScatter, Few64x64<Nt, F16, F16>;
                sm90_f16_gemm_few_rows_reduce_scatter_nt_f32_64x64x64: FewRowsReduceScatter, Few64x64<Nt, F16, F32>;
                sm90_bf16_gemm_few_rows_reduce_scatter_nt_bf16_128x64x64: FewRowsReduceScatter, Few128x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_few_rows_reduce_scatter_nt_f32_128x64x64: FewRowsReduceScatter, Few128x64<Nt, Bf16, F32>;
                sm90_f16_gemm_few_rows_reduce_scatter_nt_f16_128x64x64: FewRowsReduceScatter, Few128x64<Nt, F16, F16>;
                sm90_f16_gemm_few_rows_reduce_scatter_nt_f32_128x64x64: FewRowsReduceScatter, Few128x64<Nt, F16, F32>;
                sm90_bf16_gemm_low_latency_reduce_scatter_nt_bf16_64x64x64: LowLatencyReduceScatter, Tile64x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_low_latency_reduce_scatter_nt_f32_64x64x64: LowLatencyReduceScatter, Tile64x64<Nt, Bf16, F32>;
                sm90_f16_gemm_low_latency_reduce_scatter_nt_f16_64x64x64: LowLatencyReduceScatter, Tile64x64<Nt, F16, F16>;
                sm90_f16_gemm_low_latency_reduce_scatter_nt_f32_64x64x64: LowLatencyReduceScatter, Tile64x64<Nt, F16, F32>;
                sm90_bf16_gemm_reduce_scatter_ping_pong_nt_bf16_128x192x64: GemmReduceScatterPingPong, Tile128x192<Nt, Bf16, Bf16>;
                sm90_f16_gemm_reduce_scatter_ping_pong_nt_f16_128x192x64: GemmReduceScatterPingPong, Tile128x192<Nt, F16, F16>;
                sm90_bf16_gemm_reduce_scatter_ping_pong_nn_bf16_128x192x64: GemmReduceScatterPingPong, Tile128x192<Nn, Bf16, Bf16>;
                sm90_f16_gemm_reduce_scatter_ping_pong_nn_f16_128x192x64: GemmReduceScatterPingPong, Tile128x192<Nn, F16, F16>;
            }
            GemmEpilogueArgs {
                sm90_bf16_gemm_epilogue_nt_bf16_128x256x64: GemmEpilogue, Tile128x256<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_epilogue_nt_f32_128x256x64: GemmEpilogue, Tile128x256<Nt, Bf16, F32>;
                sm90_bf16_gemm_epilogue_nn_bf16_128x256x64: GemmEpilogue, Tile128x256<Nn, Bf16, Bf16>;
                sm90_bf16_gemm_epilogue_nn_f32_128x256x64: GemmEpilogue, Tile128x256<Nn, Bf16, F32>;
                sm90_bf16_gemm_epilogue_tn_bf16_128x256x64: GemmEpilogue, Tile128x256<Tn, Bf16, Bf16>;
                sm90_bf16_gemm_epilogue_tn_f32_128x256x64: GemmEpilogue, Tile128x256<Tn, Bf16, F32>;
                sm90_f16_gemm_epilogue_nt_f16_128x256x64: GemmEpilogue, Tile128x256<Nt, F16, F16>;
                sm90_f16_gemm_epilogue_nt_f32_128x256x64: GemmEpilogue, Tile128x256<Nt, F16, F32>;
                sm90_f16_gemm_epilogue_nn_f16_128x256x64: GemmEpilogue, Tile128x256<Nn, F16, F16>;
                sm90_f16_gemm_epilogue_nn_f32_128x256x64: GemmEpilogue, Tile128x256<Nn, F16, F32>;
                sm90_f16_gemm_epilogue_tn_f16_128x256x64: GemmEpilogue, Tile128x256<Tn, F16, F16>;
                sm90_f16_gemm_epilogue_tn_f32_128x256x64: GemmEpilogue, Tile128x256<Tn, F16, F32>;
                sm90_bf16_gemm_epilogue_nt_bf16_64x64x64: GemmEpilogue, Tile64x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_epilogue_nt_f32_64x64x64: GemmEpilogue, Tile64x64<Nt, Bf16, F32>;
                sm90_f16_gemm_epilogue_nt_f16_64x64x64: GemmEpilogue, Tile64x64<Nt, F16, F16>;
                sm90_f16_gemm_epilogue_nt_f32_64x64x64: GemmEpilogue, Tile64x64<Nt, F16, F32>;
                sm90_bf16_gemm_epilogue_nt_bf16_64x128x64: GemmEpilogue, Tile64x128<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_epilogue_nt_f32_64x128x64: GemmEpilogue, Tile64x128<Nt, Bf16, F32>;
                sm90_f16_gemm_epilogue_nt_f16_64x128x64: GemmEpilogue, Tile64x128<Nt, F16, F16>;
                sm90_f16_gemm_epilogue_nt_f32_64x128x64: GemmEpilogue, Tile64x128<Nt, F16, F32>;
                sm90_e4m3_gemm_epilogue_nt_bf16_128x128x128: GemmEpilogue, Tile128x128<Nt, E4m3, Bf16>;
                sm90_e4m3_gemm_epilogue_nt_f32_128x128x128: GemmEpilogue, Tile128x128<Nt, E4m3, F32>;
                sm90_e4m3_e5m2_gemm_epilogue_nt_bf16_128x128x128: GemmEpilogue, Tile128x128<Nt, Pair<E4m3, E5m2>, Bf16>;
                sm90_e4m3_e5m2_gemm_epilogue_nt_f32_128x128x128: GemmEpilogue, Tile128x128<Nt, Pair<E4m3, E5m2>, F32>;
            }
            GemmReduceScatterEpilogueArgs {
                sm90_bf16_gemm_reduce_scatter_epilogue_nt_bf16_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_epilogue_nt_f32_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nt, Bf16, F32>;
                sm90_bf16_gemm_reduce_scatter_epilogue_nn_bf16_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nn, Bf16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_epilogue_nn_f32_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nn, Bf16, F32>;
                sm90_bf16_gemm_reduce_scatter_epilogue_tn_bf16_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Tn, Bf16, Bf16>;
                sm90_bf16_gemm_reduce_scatter_epilogue_tn_f32_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Tn, Bf16, F32>;
                sm90_f16_gemm_reduce_scatter_epilogue_nt_f16_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nt, F16, F16>;
                sm90_f16_gemm_reduce_scatter_epilogue_nt_f32_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nt, F16, F32>;
                sm90_f16_gemm_reduce_scatter_epilogue_nn_f16_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nn, F16, F16>;
                sm90_f16_gemm_reduce_scatter_epilogue_nn_f32_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Nn, F16, F32>;
                sm90_f16_gemm_reduce_scatter_epilogue_tn_f16_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Tn, F16, F16>;
                sm90_f16_gemm_reduce_scatter_epilogue_tn_f32_128x256x64: GemmReduceScatterEpilogue, Tile128x256<Tn, F16, F32>;
                sm90_bf16_gemm_low_latency_reduce_scatter_epilogue_nt_bf16_64x64x64: LowLatencyReduceScatterEpilogue, Tile64x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_low_latency_reduce_scatter_epilogue_nt_f32_64x64x64: LowLatencyReduceScatterEpilogue, Tile64x64<Nt, Bf16, F32>;
                sm90_f16_gemm_low_latency_reduce_scatter_epilogue_nt_f16_64x64x64: LowLatencyReduceScatterEpilogue, Tile64x64<Nt, F16, F16>;
                sm90_f16_gemm_low_latency_reduce_scatter_epilogue_nt_f32_64x64x64: LowLatencyReduceScatterEpilogue, Tile64x64<Nt, F16, F32>;
                sm90_bf16_gemm_few_rows_reduce_scatter_epilogue_nt_bf16_128x64x64: FewRowsReduceScatterEpilogue, Few128x64<Nt, Bf16, Bf16>;
                sm90_bf16_gemm_few_rows_reduce_scatter_epilogue_nt_f32_128x64x64: FewRowsReduceScatterEpilogue, Few128x64<Nt, Bf16, F32>;
                sm90_f16_gemm_few_rows_reduce_scatter_epilogue_nt_f16_128x64x64: FewRowsReduceScatterEpilogue, Few128x64<Nt, F16, F16>;
                sm90_f16_gemm_few_rows_reduce_scatter_epilogue_nt_f32_128x64x64: FewRowsReduceScatterEpilogue, Few128x64<Nt, F16, F32>;
                sm90_e4m3_gemm_reduce_scatter_epilogue_nt_bf16_128x128x128: GemmReduceScatterEpilogue, Tile128x128<Nt, E4m3, Bf16>;
                sm90_e4m3_gemm_reduce_scatter_epilogue_nt_f32_128x128x128: GemmReduceScatterEpilogue, Tile128x128<Nt, E4m3, F32>;
                sm90_e4m3_e5m2_gemm_reduce_scatter_epilogue_nt_bf16_128x128x128: GemmReduceScatterEpilogue, Tile128x128<Nt, Pair<E4m3, E5m2>, Bf16>;
                sm90_e4m3_e5m2_gemm_reduce_scatter_epilogue_nt_f32_128x128x128: GemmReduceScatterEpilogue, Tile128x128<Nt, Pair<E4m3, E5m2>, F32>;
            }
        }
    };
}
pub(crate) use for_each_entry;

macro_rules! table {
    ($($args:ident { $($name:ident: $kernel:ident, $config:ty;)* })*) => {
        /// Every compiled kernel.
        pub const ENTRIES: &[Entry] = &[
            $($(entry_of::<$kernel<$config, { <$config as TileConfig>::STAGES }, { <$config as TileConfig>::PANEL_BUFS }>>(stringify!($name), Op::$kernel),)*)*
            LINK,
        ];
    };
}
for_each_entry!(table);
