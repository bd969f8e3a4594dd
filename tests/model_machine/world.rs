//! GEMM + ReduceScatter among ranks: arguments, and memory at rest.

use super::memory::{D_STRIDE, Memory};
use super::watch::FOREVER;
use tilewire_kernels::abi::{GemmReduceScatterArgs, Mix, Placement, Transport, Watchdog};
use tilewire_kernels::comm::route::{chunk_of, shard_of};
use tilewire_kernels::comm::workspace::Workspace;
use tilewire_kernels::config::TileConfig;
use tilewire_kernels::layout::flagged::flagged_panel_bytes;
use tilewire_kernels::schedule::chunked::max_chunk_tiles;
use tilewire_kernels::shape::{GlobalAddr, MAX_WORLD, Rank};

/// A call, as all ranks make it.
#[derive(Clone, Copy)]
pub struct Problem {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub world: u32,
    pub transport: Transport,
    pub placement: Placement,
}

impl Problem {
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.world).map(Rank)
    }

    pub fn d(&self, rank: Rank) -> GlobalAddr {
        GlobalAddr((rank.0 as u64 + 1) << 32 | 1 << 31)
    }

    /// Bytes of the flagged words of one tile of one panel.
    fn flagged_bytes(&self) -> u64 {
        flagged_panel_bytes(shard_of(self.m, self.world))
    }

    pub fn workspace<C: TileConfig>(&self, rank: Rank) -> Workspace {
        let slot_tiles = max_chunk_tiles(self.m, self.n, self.world, [C::TILE_M, C::TILE_N], C::ROW_ALIGN);
        let base = GlobalAddr((rank.0 as u64 + 1) << 32);
        let flagged_stride = u64::from(self.world) * self.flagged_bytes();
        let parity_stride = u64::from(self.world * slot_tiles) * u64::from(C::SLOT_TILE_BYTES);
        Workspace { base, world: self.world, slot_tiles, tile_bytes: C::SLOT_TILE_BYTES, parity_stride, flagged_stride }
    }

    /// Every rank's workspace at rest before call `epoch`, and every rank's D.
    pub fn memory<C: TileConfig>(&self, epoch: u32) -> Memory {
        let mut memory = Memory::default();
        for rank in self.ranks() {
            memory.add_workspace(self.workspace::<C>(rank), rank, epoch);
            memory.add_flagged(self.workspace::<C>(rank), rank, epoch, self.flagged_bytes());
            let rows = chunk_of(self.m, self.world, rank).rows;
            memory.add_d(self.d(rank), rows.div_ceil(64), self.n.div_ceil(64));
        }
        memory
    }

    /// This rank's watchdog; its record lies behind its D.
    pub fn watchdog<C: TileConfig>(&self, rank: Rank) -> Watchdog {
        let own = self.workspace::<C>(rank);
        let mut peer_aborts = [GlobalAddr(0); MAX_WORLD];
        for peer in self.ranks() {
            peer_aborts[peer.0 as usize] = self.workspace::<C>(peer).abort();
        }
        Watchdog {
            deadline_ns: FOREVER,
            abort: own.abort(),
            claim: own.claim(),
            record: self.d(rank).plus(1 << 30),
            rank: rank.0,
            world: self.world,
            peer_aborts,
            local_ns: FOREVER,
        }
    }

    pub fn args<C: TileConfig>(&self, rank: Rank) -> GemmReduceScatterArgs {
        let mut workspaces = [GlobalAddr(0); MAX_WORLD];
        for peer in self.ranks() {
            workspaces[peer.0 as usize] = self.workspace::<C>(peer).base;
        }
        GemmReduceScatterArgs {
            m: self.m,
            n: self.n,
            k: self.k,
            raster_group: 8,
            rank: rank.0,
            world: self.world,
            partition_ctas: 0,
            transport: self.transport as u32,
            placement: self.placement as u32,
            pace_ns: 0,
            shard: shard_of(self.m, self.world),
            slot_tiles: self.workspace::<C>(rank).slot_tiles,
            parity_stride: self.workspace::<C>(rank).parity_stride,
            flagged_stride: self.workspace::<C>(rank).flagged_stride,
            own_workspace: self.workspace::<C>(rank).base,
            workspaces,
            d: self.d(rank),
            d_stride: D_STRIDE,
            scales: [GlobalAddr(0); 2],
            mix: Mix::default(),
            watchdog: self.watchdog::<C>(rank),
        }
    }
}
