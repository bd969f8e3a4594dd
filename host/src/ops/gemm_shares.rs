//! Memory through which the CTAs of a plain GEMM pass the sums of cut tiles.

use crate::error::Result;
use crate::kernels::collective::share::{share_bytes, word_offset};
use crate::kernels::entries::Entry;
use crate::kernels::shape::GlobalAddr;
use crate::plan::SplitK;
use crate::plan::select::Work;
use crate::world::{Buffer, World};

/// The memory of one plan: sums, then words, for each tile that the plan may choose.
#[derive(Debug)]
pub struct Shares {
    memory: Buffer,
    ctas: u32,
    /// Kernel of each region, and its first byte.
    regions: Vec<(&'static Entry, u64)>,
}

impl Shares {
    /// Memory for calls of at most `work.m` rows; none where no call may cut a tile.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if there is not enough.
    pub fn new(
        world: &World,
        rank: usize,
        entries: &[&'static Entry],
        work: Work,
        split_k: SplitK,
    ) -> Result<Option<Self>> {
        let mut bytes = 0;
        let mut regions = Vec::new();
        for &entry in entries.iter().filter(|entry| work.may_split(entry, split_k)) {
            regions.push((entry, bytes));
            bytes += share_bytes(entry.tile_extent(), Work::room(work.ctas, entry)).next_multiple_of(16);
        }
        if regions.is_empty() {
            return Ok(None);
        }
        let shares = Self { memory: world.allocate(rank, bytes)?, ctas: work.ctas, regions };
        shares.clear(world, rank)?;
        Ok(Some(shares))
    }

    /// Where kernel `entry` has its region.
    pub fn of(&self, entry: &Entry) -> GlobalAddr {
        let region = self.regions.iter().find(|(of, _)| of.name == entry.name);
        self.memory.addr().plus(region.map_or(0, |(_, first)| *first))
    }

    /// Says that no sums are there for the taking: before the first call, and after one that gave up.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if the copy fails.
    pub fn clear(&self, world: &World, rank: usize) -> Result<()> {
        for &(entry, first) in &self.regions {
            let (tile, room) = (entry.tile_extent(), Work::room(self.ctas, entry));
            let words = word_offset(tile, room);
            let zeros = vec![0; (share_bytes(tile, room) - words) as usize];
            world.write(rank, self.memory.addr().plus(first + words), &zeros)?;
        }
        Ok(())
    }
}
