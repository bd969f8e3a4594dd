//! Host and device lay out parameters alike: the offsets here are what both compilers must agree on, and the sizes are
//! compared with the PTX.

use std::mem::{align_of, offset_of, size_of};

use tilewire::kernels::abi::{
    EpilogueArgs, FaultRecord, GemmArgs, GemmEpilogueArgs, GemmReduceScatterArgs, GemmReduceScatterEpilogueArgs,
    Launch, LinkArgs, LinkRound, LinkTimes, TensorMap, Watchdog,
};
use tilewire::kernels::entries::{ENTRIES, Op};
use tilewire_builder::contract::parse_param;

/// Asserts size, alignment and the offset of every field, in one table.
macro_rules! assert_layout {
    ($type:ty, size $size:expr, align $align:expr, { $($field:ident: $offset:expr),+ $(,)? }) => {
        let expected = [$((stringify!($field), $offset)),+];
        let found = [$((stringify!($field), offset_of!($type, $field))),+];
        assert_eq!(found, expected, "offsets in {}", stringify!($type));
        let found = (size_of::<$type>(), align_of::<$type>());
        assert_eq!(found, ($size, $align), "size and alignment of {}", stringify!($type));
    };
}

#[test]
fn fields_lie_where_the_kernels_read_them() {
    assert_eq!((size_of::<TensorMap>(), align_of::<TensorMap>()), (128, 16));
    assert_layout!(Launch<GemmArgs>, size 704, align 16, { maps: 0, args: 512 });
    assert_layout!(Launch<GemmReduceScatterArgs>, size 816, align 16, { maps: 0, args: 512 });
    assert_layout!(GemmArgs, size 192, align 8, {
        m: 0, n: 4, k: 8, raster_group: 12, split_tiles: 16, parts: 20, shares: 24, share_room: 32, abreast: 36, tile_cols: 40, d: 48,
        d_stride: 56, scales: 64, watchdog: 80,
    });
    assert_layout!(GemmReduceScatterArgs, size 304, align 8, {
        m: 0, n: 4, k: 8, raster_group: 12, rank: 16, world: 20, partition_ctas: 24, transport: 28, placement: 32,
        pace_ns: 36, shard: 40, slot_tiles: 44, parity_stride: 48, flagged_stride: 56, own_workspace: 64, workspaces: 72,
        d: 136, d_stride: 144, scales: 152, mix: 168, watchdog: 192,
    });
    assert_layout!(EpilogueArgs, size 56, align 8, {
        alpha: 0, beta: 4, activation: 8, source: 12, bias: 16, scale_a: 24, scale_b: 32, c: 40, c_stride: 48,
    });
    assert_layout!(GemmEpilogueArgs, size 248, align 8, { gemm: 0, epilogue: 192 });
    assert_layout!(GemmReduceScatterEpilogueArgs, size 360, align 8, { call: 0, epilogue: 304 });
    assert_layout!(LinkArgs, size 200, align 8, {
        mode: 0, message: 4, stage: 8, depth: 12, repeats: 16, pulls: 20, begins: 24, epoch: 28, payload: 32, waits: 36,
        bytes: 40, src: 48, dst: 56, own_word: 64, peer_word: 72, times: 80, watchdog: 88,
    });
    assert_layout!(LinkTimes, size 8, align 4, { ticks: 0, nanoseconds: 4 });
    assert_layout!(LinkRound, size 16, align 4, { payload: 0, release: 4, round_trip: 8, reserved: 12 });
    assert_layout!(Watchdog, size 112, align 8, {
        deadline_ns: 0, abort: 8, claim: 16, record: 24, rank: 32, world: 36, peer_aborts: 40, local_ns: 104,
    });
    assert_layout!(FaultRecord, size 48, align 8, {
        state: 0, rank: 4, cta: 8, role: 12, kind: 16, index: 20, awaited: 24, seen: 28, elapsed_ns: 32, aborted: 40,
        reserved: 44,
    });
}

#[test]
fn tensor_maps_lie_on_64_bytes_in_every_parameter() {
    // The header aligns the parameter to 64; each map must then keep that.
    assert!(offset_of!(Launch<GemmArgs>, maps).is_multiple_of(64) && size_of::<TensorMap>().is_multiple_of(64));
    assert!(ENTRIES.iter().all(|entry| entry.param_align == 64));
}

#[test]
fn the_table_has_the_sizes_of_the_structs() {
    for entry in ENTRIES {
        let size = match entry.op {
            Op::Gemm | Op::GemmPingPong => size_of::<Launch<GemmArgs>>(),
            Op::GemmReduceScatter
            | Op::GemmReduceScatterPingPong
            | Op::FewTilesReduceScatter
            | Op::FewRowsReduceScatter
            | Op::LowLatencyReduceScatter => size_of::<Launch<GemmReduceScatterArgs>>(),
            Op::GemmEpilogue => size_of::<Launch<GemmEpilogueArgs>>(),
            Op::GemmReduceScatterEpilogue | Op::FewRowsReduceScatterEpilogue | Op::LowLatencyReduceScatterEpilogue => {
                size_of::<Launch<GemmReduceScatterEpilogueArgs>>()
            }
            Op::Link => size_of::<Launch<LinkArgs>>(),
        };
        assert_eq!(entry.param_bytes, size, "{}", entry.name);
    }
}

#[test]
fn the_ptx_has_the_sizes_of_the_structs() {
    let params: Vec<_> = tilewire::ptx::PTX.lines().filter(|line| line.trim_start().starts_with(".param")).collect();
    assert_eq!(params.len(), ENTRIES.len(), "one parameter a kernel: {params:?}");
    for entry in ENTRIES {
        let name = format!("{}_param_0[", entry.name);
        let param = params.iter().find(|param| param.contains(&name)).unwrap_or_else(|| panic!("no {name} in the PTX"));
        assert_eq!(parse_param(param), Some((entry.param_align, entry.param_bytes)), "{param}");
    }
}
