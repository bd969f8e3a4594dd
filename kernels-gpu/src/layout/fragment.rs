//! Which thread of a warpgroup holds which element of a wgmma accumulator, and where `stmatrix` puts it.
//!
//! The accumulator of m64nNk16 (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"): lane `l` of warp `w` holds, for
//! each group of 8 columns, two neighbouring columns of row `16w + l/4` and the same two of the row 8 below. As
//! (row, column) ↔ (warp, lane, register) this is a mixed-radix numeral on both sides, hence a bijection.

use super::swizzle::swizzle_128;
use crate::config::ROW_BYTES;

/// Row and column of accumulator register `reg` of thread `thread` (`0..128`) in a 64 × N tile.
#[inline(always)]
pub const fn fragment_coordinates(thread: u32, reg: u32) -> (u32, u32) {
    let (warp, lane) = (thread / 32, thread % 32);
    let row = warp * 16 + lane / 4 + (reg / 2 % 2) * 8;
    let col = reg / 4 * 8 + lane % 4 * 2 + reg % 2;
    (row, col)
}

/// Byte offset in a panel that thread `thread` gives to the `group`-th `stmatrix.x4` or `ldmatrix.x4` of 16-bit elements.
///
/// One x4 covers 16 rows × 16 columns (32 bytes) of the warp: its four 8×8 matrices are registers 0–1, 2–3, 4–5, 6–7 of the
/// group (top left, bottom left, top right, bottom right), and the address of row `i` of matrix `j` comes from lane
/// `8j + i`.
#[inline(always)]
pub const fn matrix_x4_offset(thread: u32, group: u32) -> u32 {
    let (warp, lane) = (thread / 32, thread % 32);
    let row = warp * 16 + lane % 8 + (lane / 8 % 2) * 8;
    let chunk = group * 2 + lane / 16;
    swizzle_128(row, chunk * 16)
}

/// Where the `group`-th x4 of a panel lies, from where the first does: a panel starts at a multiple of 1024, and 32 bytes on
/// in a swizzled row are an exclusive-or. One address in a register instead of four.
#[inline(always)]
pub const fn matrix_x4_at(first: u32, group: u32) -> u32 {
    first ^ (group * 32)
}

/// Where register pair `pair` of a panel of f32 lies, from where the first does: as [`matrix_x4_at`], every other pair 8 rows
/// down.
#[inline(always)]
pub const fn f32_pair_at(first: u32, pair: u32) -> u32 {
    (first ^ (pair / 2 * 32)) + pair % 2 * 8 * ROW_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_the_tile_is_in_exactly_one_register() {
        let mut seen = [[false; 256]; 64];
        for thread in 0..128 {
            for reg in 0..128 {
                let (row, col) = fragment_coordinates(thread, reg);
                assert!(!seen[row as usize][col as usize], "({row}, {col}) is held twice");
                seen[row as usize][col as usize] = true;
            }
        }
        assert!(seen.iter().flatten().all(|s| *s));
    }

    #[test]
    fn later_places_follow_from_the_first() {
        for panel in [0u32, 1024, 8192 * 7] {
            for thread in 0..128 {
                for group in 0..4 {
                    let first = panel + matrix_x4_offset(thread, 0);
                    assert_eq!(matrix_x4_at(first, group), panel + matrix_x4_offset(thread, group));
                }
                for pair in 0..8 {
                    let offset = |pair: u32| {
                        let (row, col) = fragment_coordinates(thread, pair * 2);
                        swizzle_128(row, col * 4)
                    };
                    assert_eq!(f32_pair_at(panel + offset(0), pair), panel + offset(pair), "{thread} {pair}");
                }
            }
        }
    }

    #[test]
    fn a_matrix_row_lands_where_the_panel_has_its_elements() {
        // stmatrix: element (i, 2c..2c+2) of matrix j comes from lane 4i + c, register pair j of the group.
        for warp in 0..4u32 {
            for group in 0..4u32 {
                for j in 0..4u32 {
                    for i in 0..8u32 {
                        let row_start = matrix_x4_offset(warp * 32 + 8 * j + i, group);
                        for c in 0..4u32 {
                            let (row, col) = fragment_coordinates(warp * 32 + 4 * i + c, group * 8 + j * 2);
                            assert_eq!(
                                row_start + c * 4,
                                swizzle_128(row, col * 2),
                                "warp {warp} group {group} {j} {i} {c}"
                            );
                        }
                    }
                }
            }
        }
    }
}
