//! The 128-byte swizzle of TMA and wgmma.
//!
//! A tile of rows of 128 bytes is stored so that the 16-byte chunk `c` of row `r` lies where chunk `c ^ (r % 8)` would lie
//! without it. Exclusive-or with a constant is its own inverse, so within a row the map is a bijection: two chunks never
//! land on one place, and eight rows of one column land in eight different groups of banks.

use crate::config::ROW_BYTES;

/// Bytes that the swizzle moves as one.
pub const CHUNK_BYTES: u32 = 16;

/// Byte offset in a swizzled tile of byte `byte` (`0..128`) of row `row`. The tile starts at a multiple of 1024.
#[inline(always)]
pub const fn swizzle_128(row: u32, byte: u32) -> u32 {
    row * ROW_BYTES + (byte ^ ((row & 7) * CHUNK_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_swizzle_is_a_bijection_on_a_period() {
        let mut seen = [false; 1024];
        for row in 0..8 {
            for byte in 0..ROW_BYTES {
                let at = swizzle_128(row, byte) as usize;
                assert!(!seen[at], "row {row} byte {byte} lands on a taken place");
                seen[at] = true;
            }
        }
        assert!(seen.iter().all(|s| *s));
    }

    #[test]
    fn the_swizzle_undoes_itself() {
        for row in 0..64 {
            for byte in 0..ROW_BYTES {
                let once = swizzle_128(row, byte) - row * ROW_BYTES;
                assert_eq!(swizzle_128(row, once), row * ROW_BYTES + byte);
            }
        }
    }

    #[test]
    fn a_column_of_eight_rows_touches_every_bank_group_once() {
        for chunk in 0..8 {
            let mut groups = [false; 8];
            for row in 0..8 {
                groups[(swizzle_128(row, chunk * CHUNK_BYTES) % ROW_BYTES / CHUNK_BYTES) as usize] = true;
            }
            assert!(groups.iter().all(|g| *g), "chunk {chunk}");
        }
    }
}
