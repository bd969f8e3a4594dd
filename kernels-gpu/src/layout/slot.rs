//! How a tile lies in a slot: `[consumer][panel][64 rows][128 bytes]`, each panel swizzled as in shared memory, so that a
//! panel's rows are one contiguous run of bytes on the wire whatever N is.

use crate::config::{PANEL_BYTES, PANEL_ROWS, ROW_BYTES, TileConfig};
use crate::shape::{div_ceil, min};

/// Byte offset in a slot's tile of panel `panel` of consumer `consumer`.
#[inline(always)]
pub const fn panel_offset<C: TileConfig>(consumer: u32, panel: u32) -> u32 {
    const { assert!(C::WHOLE_PANELS, "slots hold whole panels") };
    (consumer * C::PANELS + panel) * PANEL_BYTES
}

/// How much of a tile exists: the rest lies past the last row or column of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileExtent {
    /// Rows of the tile that exist, `1..=TILE_M`.
    pub rows: u32,
    /// Columns of the tile that exist, `1..=TILE_N`.
    pub cols: u32,
}

impl TileExtent {
    /// Rows that exist in consumer `consumer`'s half.
    #[inline(always)]
    pub const fn rows_of(self, consumer: u32) -> u32 {
        min(self.rows.saturating_sub(consumer * PANEL_ROWS), PANEL_ROWS)
    }

    /// Panels that hold an existing column: the first so many of every consumer.
    #[inline(always)]
    pub const fn panels<C: TileConfig>(self) -> u32 {
        div_ceil(self.cols, C::PANEL_COLS)
    }

    /// Bytes of one of consumer `consumer`'s live panels: its existing rows.
    #[inline(always)]
    pub const fn panel_bytes(self, consumer: u32) -> u32 {
        self.rows_of(consumer) * ROW_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    type Tile128x256 = crate::config::Tile128x256;

    #[test]
    fn live_panels_cover_what_exists_and_no_more() {
        for rows in 1..=128 {
            for cols in 1..=256 {
                let e = TileExtent { rows, cols };
                assert_eq!(e.rows_of(0) + e.rows_of(1), rows);
                let live = e.panels::<Tile128x256>();
                assert!(live * 64 >= cols && (live - 1) * 64 < cols);
            }
        }
    }

    #[test]
    fn panels_tile_the_slot_without_gap() {
        let mut next = 0;
        for consumer in 0..2 {
            for panel in 0..Tile128x256::PANELS {
                assert_eq!(panel_offset::<Tile128x256>(consumer, panel), next);
                next += PANEL_BYTES;
            }
        }
        assert_eq!(next, Tile128x256::SLOT_TILE_BYTES);
    }
}
