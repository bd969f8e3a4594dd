//! Tensor maps: which bytes of global memory a box touches, and where the swizzle puts them.

use super::violation::{Failure, Violation};
use crate::kernels::config::ROW_BYTES;
use crate::kernels::layout::swizzle::{CHUNK_BYTES, swizzle_128};
use crate::kernels::shape::{GlobalAddr, div_ceil};

/// A two-dimensional tensor map with the 128-byte swizzle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedMap {
    /// First element.
    pub base: GlobalAddr,
    /// Rows of the tensor.
    pub rows: u32,
    /// Columns of the tensor.
    pub cols: u32,
    /// Bytes from one row to the next.
    pub row_stride_bytes: u64,
    /// Bytes of one element.
    pub element_bytes: u32,
    /// Rows of a box.
    pub box_rows: u32,
    /// Bytes of a row of a box, up to 128: what its rows are apart in shared memory.
    pub box_row_bytes: u32,
}

impl EmulatedMap {
    /// The rules that `cuTensorMapEncodeTiled` enforces.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let row_bytes = u64::from(self.cols) * u64::from(self.element_bytes);
        let rule = if !self.base.0.is_multiple_of(16) {
            "the base must be a multiple of 16"
        } else if !self.row_stride_bytes.is_multiple_of(16) || self.row_stride_bytes >= 1 << 40 {
            "the row stride must be a multiple of 16 below 2^40"
        } else if self.rows == 0 || self.cols == 0 {
            "the tensor must not be empty"
        } else if !matches!(self.element_bytes, 1 | 2 | 4 | 8) {
            "elements have 1, 2, 4 or 8 bytes"
        } else if self.box_rows == 0 || self.box_rows > 256 {
            "a box has 1 to 256 rows"
        } else if !(16..=ROW_BYTES).contains(&self.box_row_bytes) || !self.box_row_bytes.is_multiple_of(CHUNK_BYTES) {
            "rows of a box have 16 to 128 bytes, in steps of 16"
        } else if row_bytes > self.row_stride_bytes {
            "rows must not overlap"
        } else {
            return Ok(());
        };
        Err(Failure::new(Violation::InvalidTensorMap, format!("{rule}: {self:?}")))
    }

    /// Bytes from the first element to the end of the last row.
    pub(super) fn extent_bytes(&self) -> u64 {
        u64::from(self.rows.saturating_sub(1)) * self.row_stride_bytes
            + u64::from(self.cols) * u64::from(self.element_bytes)
    }

    /// Bytes of a box: what a load completes, clipped or not.
    pub(super) fn box_bytes(&self) -> u32 {
        self.box_rows * self.box_row_bytes
    }

    /// Bytes from its first to the end of its last row in shared memory.
    pub(super) fn smem_bytes(&self) -> u32 {
        self.box_rows * ROW_BYTES
    }

    /// Rows of the box at (`row`, `col`) that lie in the tensor, with address and length of the part of each that does.
    /// `row` is signed, wrapped: a box may begin before the tensor.
    pub(super) fn box_parts(&self, row: u32, col: u32) -> impl Iterator<Item = (u32, GlobalAddr, u32)> + use<> {
        let map = *self;
        let first = i64::from(row as i32);
        let cols = map.cols.saturating_sub(col).min(div_ceil(map.box_row_bytes, map.element_bytes));
        let is_inside = move |r: &u32| cols > 0 && (0..i64::from(map.rows)).contains(&(first + i64::from(*r)));
        (0..map.box_rows).filter(is_inside).map(move |r| {
            let row = (first + i64::from(r)) as u64;
            let off = row * map.row_stride_bytes + u64::from(col) * u64::from(map.element_bytes);
            (r, map.base.plus(off), cols * map.element_bytes)
        })
    }

    /// What a store of the box writes: the same rows, each to the end of the 16-byte step in which its last column lies. An
    /// H200 clips stores no finer than that.
    pub(super) fn stored_parts(&self, row: u32, col: u32) -> impl Iterator<Item = (u32, GlobalAddr, u32)> + use<> {
        self.box_parts(row, col).map(|(r, addr, len)| (r, addr, len.next_multiple_of(CHUNK_BYTES)))
    }
}

/// Writes one box row of `bytes` (up to 128, the rest zeros) to its swizzled place in the box `tile`.
pub(super) fn swizzle_row_in(tile: &mut [u8], row: u32, bytes: &[u8]) {
    let mut padded = [0; ROW_BYTES as usize];
    padded[..bytes.len()].copy_from_slice(bytes);
    for (chunk, data) in (0..).zip(padded.chunks_exact(CHUNK_BYTES as usize)) {
        let at = swizzle_128(row, chunk * CHUNK_BYTES) as usize;
        tile[at..at + CHUNK_BYTES as usize].copy_from_slice(data);
    }
}

/// Reads one box row from its swizzled place in the box `tile`.
pub(super) fn swizzled_row(tile: &[u8], row: u32) -> [u8; ROW_BYTES as usize] {
    let mut bytes = [0; ROW_BYTES as usize];
    for (chunk, data) in (0..).zip(bytes.chunks_exact_mut(CHUNK_BYTES as usize)) {
        let at = swizzle_128(row, chunk * CHUNK_BYTES) as usize;
        data.copy_from_slice(&tile[at..at + CHUNK_BYTES as usize]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: EmulatedMap = EmulatedMap {
        base: GlobalAddr(4096),
        rows: 100,
        cols: 70,
        row_stride_bytes: 160,
        element_bytes: 2,
        box_rows: 64,
        box_row_bytes: 128,
    };

    #[test]
    fn parts_are_clipped_to_the_tensor() {
        let parts: Vec<_> = MAP.box_parts(64, 64).collect();
        assert_eq!(parts.len(), 36);
        assert_eq!(parts[0], (0, GlobalAddr(4096 + 64 * 160 + 128), 12));
        assert_eq!(MAP.box_parts(0, 0).count(), 64);
        assert!(MAP.box_parts(0, 0).all(|p| p.2 == 128));
        assert_eq!(MAP.box_parts(100, 0).count() + MAP.box_parts(0, 70).count(), 0);
        assert_eq!(MAP.box_parts(0, u32::MAX).count(), 0);
        let parts: Vec<_> = MAP.box_parts(3u32.wrapping_neg(), 0).collect();
        assert_eq!((parts.len(), parts[0]), (61, (3, GlobalAddr(4096), 128)));
        assert_eq!(MAP.extent_bytes(), 99 * 160 + 140);
    }

    #[test]
    fn stores_are_clipped_to_whole_steps_of_sixteen_bytes() {
        let lengths = |cols, col| EmulatedMap { cols, ..MAP }.stored_parts(99, col).map(|p| p.2).collect::<Vec<_>>();
        for (cols, col, bytes) in [(70, 64, 16), (72, 64, 16), (73, 64, 32), (70, 0, 128)] {
            assert_eq!(lengths(cols, col), [bytes], "{cols} columns, from {col}");
        }
        assert!(lengths(64, 64).is_empty());
    }

    #[test]
    fn a_swizzled_row_comes_back() {
        let mut tile = vec![0xFF; 64 * 128];
        for row in 0..64 {
            let bytes: Vec<u8> = (0..100).map(|i| (row * 3 + i) as u8).collect();
            swizzle_row_in(&mut tile, row, &bytes);
        }
        for row in 0..64 {
            let back = swizzled_row(&tile, row);
            assert!((0..100).all(|i| back[i as usize] == (row * 3 + i) as u8) && back[100..] == [0; 28]);
        }
    }

    #[test]
    fn maps_that_the_driver_would_refuse_are_refused() {
        assert!(MAP.check().is_ok());
        for bad in [
            EmulatedMap { base: GlobalAddr(8), ..MAP },
            EmulatedMap { row_stride_bytes: 152, ..MAP },
            EmulatedMap { row_stride_bytes: 128, ..MAP },
            EmulatedMap { rows: 0, ..MAP },
            EmulatedMap { cols: 0, ..MAP },
            EmulatedMap { box_rows: 257, ..MAP },
            EmulatedMap { box_row_bytes: 144, ..MAP },
            EmulatedMap { box_row_bytes: 24, ..MAP },
            EmulatedMap { element_bytes: 3, ..MAP },
        ] {
            assert_eq!(bad.check().unwrap_err().violation, Violation::InvalidTensorMap, "{bad:?}");
        }
    }
}
