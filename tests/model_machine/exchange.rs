//! Flagged words, on one number a panel: two words carry it, each with its flag, as atomics that order nothing.

use super::waiting::Key;
use super::{Agent, Mutant};
use loom::sync::atomic::{AtomicU64, Ordering};
use std::sync::atomic::AtomicU64 as Plain;
use tilewire_kernels::config::TileConfig;
use tilewire_kernels::layout::flagged::FlaggedRows;
use tilewire_kernels::machine::{ExchangeRows, RowsOut};

/// The words of one panel from one sender.
pub struct Flagged {
    words: [AtomicU64; 2],
    /// Their latest values, which a load need not see yet.
    latest: [Plain; 2],
}

impl Flagged {
    /// Words that were last written in call `epoch`.
    pub fn new(epoch: u32) -> Self {
        let word = u64::from(epoch) << 32;
        Self { words: [AtomicU64::new(word), AtomicU64::new(word)], latest: [Plain::new(word), Plain::new(word)] }
    }

    fn key(&self) -> Key {
        self as *const Self as Key
    }
}

impl<C: TileConfig> ExchangeRows<C> for Agent<C> {
    fn send_rows(&self, rows: &FlaggedRows, panel: &u32, epoch: u32) {
        if rows.rows == 0 {
            return;
        }
        let flagged = self.cta.memory.flagged(rows.base);
        let value = u64::from(epoch) << 32 | u64::from(*panel);
        for (word, latest) in flagged.words.iter().zip(&flagged.latest) {
            if self.cta.words_are_fresh {
                word.swap(value, Ordering::Relaxed);
            } else {
                word.store(value, Ordering::Relaxed);
            }
            latest.store(value, Ordering::Relaxed);
        }
        self.cta.memory.waiting.note_write(flagged.key());
    }

    fn take_rows(&self, rows: &FlaggedRows, epoch: u32) -> Result<u32, u32> {
        let flagged = self.cta.memory.flagged(rows.base);
        self.looked_at(flagged.key());
        let fresh = self.cta.words_are_fresh;
        let found = flagged
            .words
            .each_ref()
            .map(|word| if fresh { word.fetch_add(0, Ordering::Relaxed) } else { word.load(Ordering::Relaxed) });
        let flags = found.map(|value| (value >> 32) as u32);
        if flags == [epoch; 2] || self.is(Mutant::AnyFlag) {
            let data = found.map(|value| value as u32);
            assert_eq!(data[0], data[1], "words of one call hold data of two");
            return Ok(data[0]);
        }
        let is_stale = |word: usize| flagged.latest[word].load(std::sync::atomic::Ordering::Relaxed) != found[word];
        self.found_stale(is_stale(0) || is_stale(1));
        Err(if flags[0] == epoch { flags[1] } else { flags[0] })
    }

    fn store_rows(&self, out: &RowsOut, panel: &u32) {
        self.cta.memory.payload(out.dst).write(*panel);
    }
}
