//! Rows that travel as flagged words: each 8 bytes carry 4 bytes of data and the epoch of the call, so that whoever finds the
//! epoch has the data. No signal follows them, and no fence comes before one.
//!
//! A word is written and read whole, because memory accesses of 8 bytes are (PTX ISA, "Memory Consistency Model"). A row of a
//! panel, 128 bytes, takes 256. The four lanes that hold a row of the accumulator each store two words at a time: the first two
//! of every lane and row lie together, then the next two, and so on in four planes. So 32 lanes write 512 bytes in a row.

use crate::config::ROW_BYTES;
use crate::shape::{GlobalAddr, div_ceil};

/// Bytes of a flagged word: data, then flag.
pub const WORD_BYTES: u32 = 8;
/// Lanes that share a row of an accumulator.
pub const QUAD: u32 = 4;
/// Words of a row that one lane has.
pub const LANE_WORDS: u32 = ROW_BYTES / 4 / QUAD;
/// Words that a lane stores at once.
pub const WORDS_AT_ONCE: u32 = 2;
/// Planes of a panel.
pub const PLANES: u32 = LANE_WORDS / WORDS_AT_ONCE;
/// Bytes of a row in a plane.
pub const PLANE_ROW_BYTES: u32 = QUAD * WORDS_AT_ONCE * WORD_BYTES;
/// Bytes of a row of a panel in all planes.
pub const FLAGGED_ROW_BYTES: u32 = PLANES * PLANE_ROW_BYTES;

/// Rows of one panel of one consumer that belong to one owner, and where their words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlaggedRows {
    /// First byte of the panel's words: where row 0 of the owner's chunk has its first.
    pub base: GlobalAddr,
    /// Rows that a plane has room for: those of a whole chunk.
    pub plane_rows: u32,
    /// First row, counted from the start of the consumer's half of the tile.
    pub first: u32,
    /// Number of rows.
    pub rows: u32,
    /// Row of the owner's chunk that row `first` is.
    pub chunk_row: u32,
}

impl FlaggedRows {
    /// Whether row `row` of the half is one of them.
    #[inline(always)]
    pub const fn has(&self, row: u32) -> bool {
        row.wrapping_sub(self.first) < self.rows
    }

    /// Where lane `lane` (`0..4`) of row `row` has its words in plane 0. Only rows that are there.
    #[inline(always)]
    pub const fn at(&self, row: u32, lane: u32) -> GlobalAddr {
        let place = (self.chunk_row + row.wrapping_sub(self.first)) * QUAD + lane;
        self.base.plus((place * WORDS_AT_ONCE * WORD_BYTES) as u64)
    }

    /// Bytes from one plane to the next.
    #[inline(always)]
    pub const fn plane_bytes(&self) -> u64 {
        self.plane_rows as u64 * PLANE_ROW_BYTES as u64
    }
}

/// Bytes of a panel's words for chunks of up to `chunk_rows` rows.
#[inline(always)]
pub const fn flagged_panel_bytes(chunk_rows: u32) -> u64 {
    chunk_rows as u64 * FLAGGED_ROW_BYTES as u64
}

/// Bytes of a tile's words: of `tile_n` columns of elements of `element_bytes`, for chunks of up to `chunk_rows` rows.
#[inline(always)]
pub const fn flagged_tile_bytes(tile_n: u32, element_bytes: u32, chunk_rows: u32) -> u64 {
    div_ceil(tile_n * element_bytes, ROW_BYTES) as u64 * flagged_panel_bytes(chunk_rows)
}

/// First of the elements that word `word` (`0..8`) of lane `lane` carries, as a column of the panel: two neighbours of 16 bits, or
/// one of 32 bits. `element_bytes` is the size of one.
#[inline(always)]
pub const fn word_col(lane: u32, word: u32, element_bytes: u32) -> u32 {
    match element_bytes {
        4 => word / 2 * 8 + lane * 2 + word % 2,
        _ => word * 8 + lane * 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::fragment::fragment_coordinates;

    #[test]
    fn every_byte_of_a_row_is_in_one_word() {
        for element_bytes in [2, 4] {
            let mut seen = [false; ROW_BYTES as usize];
            for lane in 0..QUAD {
                for word in 0..LANE_WORDS {
                    for byte in 0..4 {
                        let at = (word_col(lane, word, element_bytes) * element_bytes + byte) as usize;
                        assert!(!core::mem::replace(&mut seen[at], true), "byte {at} is in two words");
                    }
                }
            }
            assert!(seen.iter().all(|seen| *seen));
        }
    }

    #[test]
    fn a_lanes_words_are_what_its_registers_hold() {
        for thread in 0..128 {
            for word in 0..LANE_WORDS {
                for half in 0..2 {
                    // Of 16 bits, pair `word` of a row; of 32 bits, every register by itself.
                    let (row, col) = fragment_coordinates(thread, word * 4 + half * 2);
                    assert_eq!(row, thread / 32 * 16 + thread % 32 / 4 + half * 8);
                    assert_eq!(col, word_col(thread % 4, word, 2));
                    let (_, col) = fragment_coordinates(thread, word / 2 * 4 + half * 2 + word % 2);
                    assert_eq!(col, word_col(thread % 4, word, 4));
                }
            }
        }
    }

    #[test]
    fn words_of_a_panel_fill_its_bytes_whatever_rows_come_from_where() {
        for chunk_rows in [1, 3, 8, 33, 64] {
            let mut seen = [false; 64 * FLAGGED_ROW_BYTES as usize / 16];
            // A chunk over two halves: the second has what the first has not.
            let split = chunk_rows / 3;
            for (first, rows, chunk_row) in [(64 - split, split, 0), (0, chunk_rows - split, split)] {
                let rows = FlaggedRows { base: GlobalAddr(0), plane_rows: chunk_rows, first, rows, chunk_row };
                for row in (0..64).filter(|row| rows.has(*row)) {
                    for lane in 0..QUAD {
                        for plane in 0..PLANES {
                            let at = rows.at(row, lane).0 + u64::from(plane) * rows.plane_bytes();
                            assert!(
                                at.is_multiple_of(16) && !core::mem::replace(&mut seen[at as usize / 16], true),
                                "{at}"
                            );
                        }
                    }
                }
            }
            let len = flagged_panel_bytes(chunk_rows) as usize / 16;
            assert!(seen[..len].iter().all(|seen| *seen) && !seen[len..].contains(&true), "{chunk_rows}");
        }
    }
}
