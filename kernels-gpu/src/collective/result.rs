//! The way of a finished panel to D: by the copy engine as far as rows are whole steps of 16 bytes, in which it stores; what
//! is left of a row by plain stores, so that nothing behind a row is written.

use crate::abi::{GemmArgs, Operand};
use crate::config::{PANEL_ROWS, TileConfig};
use crate::layout::slot::TileExtent;
use crate::machine::{BulkCopy, RowEnds};
use crate::shape::{SmemAddr, min};

/// Bytes that the copy engine stores at once.
const STEP_BYTES: u32 = 16;

/// Columns of D, of `n`, that are whole steps: what its tensor map describes.
pub const fn whole_steps(n: u32, element_bytes: u32) -> u32 {
    n - n % (STEP_BYTES / element_bytes)
}

/// Storer: stores panel `panel` of consumer `consumer`, at `src`, of the tile whose first element is at (`row`, `col`). In the
/// open bulk group.
#[inline(always)]
pub fn store_to_d<M: BulkCopy, C: TileConfig>(
    m: &M,
    args: &GemmArgs,
    [row, col]: [u32; 2],
    extent: TileExtent,
    consumer: u32,
    panel: u32,
    src: SmemAddr,
) {
    let rows = extent.rows_of(consumer);
    if rows == 0 {
        return;
    }
    let tile_end = col + extent.cols;
    let (row, col) = (row + consumer * PANEL_ROWS, col + C::panel_col(panel));
    let whole = whole_steps(args.n, C::OUT.bytes());
    if col < whole {
        m.store_box(Operand::D, row, col, src);
    }
    // Of two tiles that a panel reaches into, the first does not end here.
    if whole < args.n && whole < min(col + C::PANEL_COLS, tile_end) {
        let at = row as u64 * args.d_stride + whole as u64 * C::OUT.bytes() as u64;
        m.store_row_ends(&RowEnds {
            src,
            off: (whole - col) * C::OUT.bytes(),
            bytes: (args.n - whole) * C::OUT.bytes(),
            rows,
            dst: args.d.plus(at),
            stride: args.d_stride,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_steps_are_multiples_of_16_bytes() {
        for (n, bytes, whole) in
            [(0, 2, 0), (7, 2, 0), (8, 2, 8), (105, 2, 104), (3, 4, 0), (105, 4, 104), (107, 4, 104)]
        {
            assert_eq!(whole_steps(n, bytes), whole, "{n} columns of {bytes} bytes");
        }
    }
}
