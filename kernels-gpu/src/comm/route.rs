//! The shard rule and the rank order.
//!
//! Rank d owns rows `[d·s, min(M, (d+1)·s))` with `s = ceil(M / W)`; the last ranks may own fewer rows or none. At step j
//! rank r computes the chunk of rank `(r + 1 + j) mod W`, its own last: for a fixed step the map from rank to owner is a
//! rotation, so no two ranks send to one peer.

use crate::shape::{Rank, div_ceil, min};

/// Rows that one owner keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// First row.
    pub first_row: u32,
    /// Number of rows; may be 0.
    pub rows: u32,
}

/// Rows of a whole chunk of `m` rows among `world` ranks.
#[inline(always)]
pub const fn shard_of(m: u32, world: u32) -> u32 {
    div_ceil(m, world)
}

/// The chunk of `owner` among `world` ranks over `m` rows.
#[inline(always)]
pub const fn chunk_of(m: u32, world: u32, owner: Rank) -> Chunk {
    Chunk::of_shard(m, shard_of(m, world), owner)
}

impl Chunk {
    /// The chunk of `owner` over `m` rows, of which each rank owns up to `shard`.
    #[inline(always)]
    pub const fn of_shard(m: u32, shard: u32, owner: Rank) -> Self {
        let first_row = min(owner.0.saturating_mul(shard), m);
        Self { first_row, rows: min(m - first_row, shard) }
    }
}

/// Owner of the chunk that `rank` computes at `step`, `0..world`.
#[inline(always)]
pub const fn owner_at_step(rank: Rank, world: u32, step: u32) -> Rank {
    let next = rank.0 + 1 + step;
    Rank(if next < world { next } else { next - world })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ragged_chunks_follow_the_ceil_rule() {
        let rows = |m, w: u32| (0..w).map(move |d| chunk_of(m, w, Rank(d)).rows);
        assert!(rows(1023, 4).eq([256, 256, 256, 255]));
        assert!(rows(257, 8).eq([33, 33, 33, 33, 33, 33, 33, 26]));
        assert!(rows(9, 8).eq([2, 2, 2, 2, 1, 0, 0, 0]));
        assert!(rows(5, 4).eq([2, 2, 1, 0]));
        assert!(rows(3, 4).eq([1, 1, 1, 0]));
        assert!(rows(1, 8).eq([1, 0, 0, 0, 0, 0, 0, 0]));
        assert!(rows(0, 4).eq([0; 4]));
    }

    #[test]
    fn chunks_partition_the_rows() {
        for m in 0..300 {
            for world in 1..=8 {
                let mut next = 0;
                for d in 0..world {
                    let c = chunk_of(m, world, Rank(d));
                    assert_eq!(c.first_row, next);
                    next += c.rows;
                }
                assert_eq!(next, m);
            }
        }
    }

    #[test]
    fn no_two_ranks_target_one_owner_at_one_step_and_the_own_chunk_comes_last() {
        for world in 1..=8 {
            for step in 0..world {
                let mut targets = 0u32;
                for r in 0..world {
                    let owner = owner_at_step(Rank(r), world, step);
                    assert_eq!(targets & 1 << owner.0, 0);
                    targets |= 1 << owner.0;
                    assert_eq!(owner == Rank(r), step == world - 1);
                }
            }
        }
    }
}
