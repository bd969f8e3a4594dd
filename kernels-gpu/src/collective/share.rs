//! Tiles that are cut along K: sums go from the CTAs that have later parts to the one that has the first.
//!
//! The memory for it holds, for each CTA, the accumulators of its consumers, and then for each CTA and consumer one word: 1
//! while sums are there for the taking, else 0. Every word is 0 between calls.
//!
//! | who | step | ordered by |
//! | --- | --- | --- |
//! | giver | writes its accumulator, then sets the word | release of the whole warpgroup |
//! | taker | waits for the word, adds the accumulator, then clears the word | acquire; release of the whole warpgroup |
//!
//! A CTA gives at most once in a call, so its memory is free when the call begins.

use crate::abi::WaitKind;
use crate::comm::signal::wait_local_signal;
use crate::config::{PANEL_ROWS, TileConfig};
use crate::machine::{Aborted, ShareAcc, Signals, Watch};
use crate::schedule::stream_k::{Part, StreamK};
use crate::shape::{GlobalAddr, Role};

/// Bytes of one consumer's accumulator.
pub const fn acc_bytes<C: TileConfig>() -> u64 {
    PANEL_ROWS as u64 * C::TILE_N as u64 * 4
}

/// Bytes that `ctas` CTAs need to share tiles of `tile` rows and columns with one another.
pub const fn share_bytes(tile: [u32; 2], ctas: u32) -> u64 {
    word_offset(tile, ctas) + ctas as u64 * (tile[0] / PANEL_ROWS) as u64 * 4
}

/// First byte of the words.
pub const fn word_offset(tile: [u32; 2], ctas: u32) -> u64 {
    ctas as u64 * tile[0] as u64 * tile[1] as u64 * 4
}

#[inline(always)]
fn sums<C: TileConfig>(shares: GlobalAddr, cta: u32, consumer: u32) -> GlobalAddr {
    shares.plus((cta * C::CONSUMERS + consumer) as u64 * acc_bytes::<C>())
}

#[inline(always)]
fn word<C: TileConfig>(shares: GlobalAddr, ctas: u32, cta: u32, consumer: u32) -> GlobalAddr {
    shares.plus(word_offset([C::TILE_M, C::TILE_N], ctas) + (cta * C::CONSUMERS + consumer) as u64 * 4)
}

/// Consumer `consumer` of CTA `cta`: leaves `acc` for the CTA that finishes the tile.
#[inline(always)]
pub fn give<M: ShareAcc<C>, C: TileConfig>(
    m: &M,
    shares: GlobalAddr,
    work: &StreamK,
    cta: u32,
    consumer: u32,
    acc: &M::Acc,
) {
    m.store_acc(sums::<C>(shares, cta, consumer), acc);
    m.publish(word::<C>(shares, work.ctas, cta, consumer), 1);
}

/// Consumer `consumer` of CTA `cta`: adds to `acc` what other CTAs have of the tile of `part`, in the order of K.
#[inline(always)]
pub fn take<M: ShareAcc<C> + Signals + Watch, C: TileConfig>(
    m: &M,
    shares: GlobalAddr,
    work: &StreamK,
    cta: u32,
    consumer: u32,
    part: &Part,
    acc: &mut M::Acc,
) -> Result<(), Aborted> {
    if part.k_end == work.k_tiles {
        return Ok(());
    }
    let mut giver = cta + 1;
    while work.adds_to(giver, part.tile) {
        let word = word::<C>(shares, work.ctas, giver, consumer);
        wait_local_signal(m, Role::Consumer(consumer), WaitKind::Share, giver, word, 1)?;
        m.add_acc(sums::<C>(shares, giver, consumer), acc);
        m.publish(word, 0);
        giver += 1;
    }
    Ok(())
}
