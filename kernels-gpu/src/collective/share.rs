//! Tiles that are cut along K: sums go from the CTAs that have later parts to the one that has the first.
//!
//! The memory for it holds, for each part that is given away, the accumulators of the consumers; and then for each part and
//! consumer one word: 1 while sums are there for the taking, else 0. Every word is 0 between calls.
//!
//! | who | step | ordered by |
//! | --- | --- | --- |
//! | giver | writes its accumulator, then sets the word | release of the whole warpgroup |
//! | taker | waits for the word, adds the accumulator, then clears the word | acquire; release of the whole warpgroup |
//!
//! Every part has its own place ([`SplitTiles::given`]), so a place is free when the call begins.

use crate::abi::WaitKind;
use crate::comm::signal::wait_local_signal;
use crate::config::{PANEL_ROWS, TileConfig};
use crate::machine::{Aborted, ShareAcc, Signals, Watch};
use crate::schedule::split_k::{Part, SplitTiles};
use crate::shape::{GlobalAddr, Role};

/// Bytes of one consumer's accumulator.
pub const fn acc_bytes<C: TileConfig>() -> u64 {
    PANEL_ROWS as u64 * C::TILE_N as u64 * 4
}

/// Bytes for `given` parts of tiles of `tile` rows and columns that are given away.
pub const fn share_bytes(tile: [u32; 2], given: u32) -> u64 {
    word_offset(tile, given) + given as u64 * (tile[0] / PANEL_ROWS) as u64 * 4
}

/// First byte of the words, where there is room for `given` parts.
pub const fn word_offset(tile: [u32; 2], given: u32) -> u64 {
    given as u64 * tile[0] as u64 * tile[1] as u64 * 4
}

/// Memory in which consumers of one index leave sums for each other.
#[derive(Clone, Copy)]
pub struct Shares {
    /// First byte.
    pub base: GlobalAddr,
    /// Parts there is room for.
    pub room: u32,
    /// The consumers' index.
    pub consumer: u32,
}

impl Shares {
    #[inline(always)]
    fn sums<C: TileConfig>(&self, place: u32) -> GlobalAddr {
        self.base.plus((place * C::CONSUMERS + self.consumer) as u64 * acc_bytes::<C>())
    }

    #[inline(always)]
    fn word<C: TileConfig>(&self, place: u32) -> GlobalAddr {
        let words = self.base.plus(word_offset([C::TILE_M, C::TILE_N], self.room));
        words.plus((place * C::CONSUMERS + self.consumer) as u64 * 4)
    }

    /// Consumer: leaves `acc` of `part` for the CTA that finishes the tile.
    #[inline(always)]
    pub fn give<M: ShareAcc<C>, C: TileConfig>(&self, m: &M, work: &SplitTiles, part: &Part, acc: &M::Acc) {
        let place = work.given(part.tile, part.number);
        m.store_acc(self.sums::<C>(place), acc);
        m.publish(self.word::<C>(place), 1);
    }

    /// Consumer: adds to `acc`, which has the first part of tile `tile`, the other parts in the order of K.
    #[inline(always)]
    pub fn take<M: ShareAcc<C> + Signals + Watch, C: TileConfig>(
        &self,
        m: &M,
        work: &SplitTiles,
        tile: u32,
        acc: &mut M::Acc,
    ) -> Result<(), Aborted> {
        let (mut number, parts) = (1, work.parts_of(tile));
        while number < parts {
            let place = work.given(tile, number);
            let word = self.word::<C>(place);
            wait_local_signal(m, Role::Consumer(self.consumer), WaitKind::Share, place, word, 1)?;
            m.add_acc(self.sums::<C>(place), acc);
            m.publish(word, 0);
            number += 1;
        }
        Ok(())
    }
}
