//! The tiles of a call of GEMM + ReduceScatter, and where each rank's workspace lies: found from the arguments.

use crate::abi::GemmReduceScatterArgs;
use crate::comm::workspace::Workspace;
use crate::config::TileConfig;
use crate::schedule::chunked::ChunkedTiles;
use crate::shape::{GlobalAddr, Rank};

/// The tiles of a call.
#[inline(always)]
pub(super) fn tiles<C: TileConfig>(args: &GemmReduceScatterArgs) -> ChunkedTiles {
    ChunkedTiles {
        m: args.m,
        n: args.n,
        rank: Rank(args.rank),
        world: args.world,
        shard: args.shard,
        tile_m: C::TILE_M,
        tile_n: C::TILE_N,
        group: args.raster_group,
        row_align: C::ROW_ALIGN,
    }
}

#[inline(always)]
pub(super) fn own_workspace<C: TileConfig>(args: &GemmReduceScatterArgs) -> Workspace {
    workspace_at::<C>(args, args.own_workspace)
}

#[inline(always)]
pub(super) fn workspace<C: TileConfig>(args: &GemmReduceScatterArgs, rank: Rank) -> Workspace {
    let base = match args.workspaces.get(rank.0 as usize) {
        Some(base) => *base,
        None => GlobalAddr(0),
    };
    workspace_at::<C>(args, base)
}

#[inline(always)]
fn workspace_at<C: TileConfig>(args: &GemmReduceScatterArgs, base: GlobalAddr) -> Workspace {
    Workspace {
        base,
        world: args.world,
        slot_tiles: args.slot_tiles,
        tile_bytes: C::SLOT_TILE_BYTES,
        parity_stride: args.parity_stride,
        flagged_stride: args.flagged_stride,
    }
}
