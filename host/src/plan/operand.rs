//! Operands of a call: raw addresses with shape and stride, as any framework can pass them.

use crate::error::{Error, Result};
use crate::kernels::config::{Element, ROW_BYTES, TileBox};

/// A row-major matrix in the memory of one rank: an address and a row stride.
///
/// The shape comes from the op. The address is a device address of the rank's GPU (or of the emulator's memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixArg {
    /// Address of the first element; a multiple of 16 bytes.
    pub addr: u64,
    /// Elements from one row to the next; its bytes are a multiple of 16.
    pub row_stride: u64,
}

/// Which operand a matrix is: its name in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixRole {
    /// Name of the operand.
    pub name: &'static str,
    /// Rank that passes it.
    pub rank: usize,
}

/// A matrix that a tensor map will describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Address of the first element.
    pub addr: u64,
    /// Rows; not 0.
    pub rows: u32,
    /// Columns; not 0.
    pub cols: u32,
    /// Bytes from one row to the next.
    pub row_stride_bytes: u64,
    /// Element type.
    pub element: Element,
    /// Box of one copy.
    pub tile_box: TileBox,
    /// Bytes of a row of the box; its rows lie [`ROW_BYTES`] apart in shared memory.
    pub box_row_bytes: u32,
    /// How L2 fetches it from memory.
    pub fetch: L2Fetch,
}

/// How many bytes L2 fetches from memory together.
///
/// 256 bring the next stage's columns of every row along. That hides latency where few stages are on their way, and costs bandwidth
/// where many are. Measured on H200s: 58.4 µs with 256, 57.5 with 128 for 16×8192×14336, whose kernel has twelve stages; over two
/// ranks 76.0 and 79.3 for 128×8192×28672, whose kernel had six; products with more rows take the same with both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum L2Fetch {
    /// 128 bytes: one row of a box.
    Bytes128 = 128,
    /// 256 bytes.
    #[default]
    Bytes256 = 256,
}

impl L2Fetch {
    /// Most rows of a call that is bound by how fast B comes from memory, and whose kernel keeps many stages on their way.
    const FEW_ROWS: u32 = 64;

    /// How B is fetched by a call of `m` rows.
    pub fn of_b(m: u32) -> Self {
        if m <= Self::FEW_ROWS { Self::Bytes128 } else { Self::Bytes256 }
    }
}

/// Strides of TMA tensors are below this many bytes.
const MAX_STRIDE_BYTES: u64 = 1 << 40;

impl MatrixArg {
    /// A matrix at `addr` whose rows follow each other without a gap.
    pub fn packed(addr: u64, cols: usize) -> Self {
        Self { addr, row_stride: cols as u64 }
    }

    /// Checks the matrix against the rules of the copy engine and describes it; `None` if it is empty and so never
    /// touched.
    ///
    /// # Errors
    /// Names the operand, the value and the rule: null or misaligned address, stride below the row or not a multiple of
    /// 16 bytes.
    pub fn describe(
        &self,
        role: MatrixRole,
        (rows, cols): (usize, usize),
        element: Element,
        tile_box: TileBox,
    ) -> Result<Option<MapSpec>> {
        if rows == 0 || cols == 0 {
            return Ok(None);
        }
        let MatrixRole { name, rank } = role;
        let what = |field: &str| format!("{field} of {name} on rank {rank}");
        let bytes = u64::from(element.bytes());
        if self.addr == 0 {
            return Err(Error::argument(what("address"), "null", "an operand that is read or written needs memory"));
        }
        if !self.addr.is_multiple_of(16) {
            let shown = format!("{:#x}", self.addr);
            return Err(Error::argument(what("address"), shown, "it must be a multiple of 16 bytes"));
        }
        if self.row_stride < cols as u64 {
            let rule = format!("it must be at least the {cols} columns of a row");
            return Err(Error::argument(what("row stride"), format!("{} elements", self.row_stride), rule));
        }
        let row_stride_bytes = self.row_stride.saturating_mul(bytes);
        if row_stride_bytes >= MAX_STRIDE_BYTES {
            let shown = format!("{row_stride_bytes} bytes");
            return Err(Error::argument(what("row stride"), shown, "the copy engine takes strides below 2^40 bytes"));
        }
        if !row_stride_bytes.is_multiple_of(16) {
            let shown = format!("{} elements ({row_stride_bytes} bytes)", self.row_stride);
            let rule = format!(
                "it must be a multiple of 16 bytes: {} elements would do",
                self.row_stride.next_multiple_of(16 / bytes)
            );
            return Err(Error::argument(what("row stride"), shown, rule));
        }
        let (rows, cols) = (rows as u32, cols as u32);
        Ok(Some(MapSpec {
            addr: self.addr,
            rows,
            cols,
            row_stride_bytes,
            element,
            tile_box,
            box_row_bytes: ROW_BYTES,
            fetch: L2Fetch::default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: MatrixRole = MatrixRole { name: "A", rank: 2 };
    const BOX: TileBox = TileBox { rows: 128, count: 1 };

    fn describe(addr: u64, row_stride: u64, cols: usize) -> Result<Option<MapSpec>> {
        MatrixArg { addr, row_stride }.describe(ROLE, (10, cols), Element::Bf16, BOX)
    }

    #[test]
    fn obeying_the_stride_message_makes_the_call_work() {
        for cols in [1, 7, 8, 9, 105, 107] {
            for row_stride in [cols as u64, cols as u64 + 1, cols as u64 + 8] {
                match describe(0x1000, row_stride, cols) {
                    Ok(Some(spec)) => assert_eq!(spec.row_stride_bytes % 16, 0),
                    Ok(None) => panic!("not empty"),
                    Err(e) => {
                        let text = e.to_string();
                        assert!(text.contains("row stride of A on rank 2"), "{text}");
                        let advised =
                            text.split("bytes: ").nth(1).and_then(|t| t.split(' ').next()).map(str::parse::<u64>);
                        let advised = advised.expect("the message advises a stride").expect("a number");
                        assert!(describe(0x1000, advised, cols).is_ok(), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn calls_of_few_rows_fetch_b_row_by_row() {
        let of = [1, 64, 65, u32::MAX].map(L2Fetch::of_b);
        assert_eq!(of, [L2Fetch::Bytes128, L2Fetch::Bytes128, L2Fetch::Bytes256, L2Fetch::Bytes256]);
    }

    #[test]
    fn null_misaligned_and_narrow_are_named() {
        for (addr, stride, want) in [(0, 64, "null"), (0x1008, 64, "0x1008"), (0x1000, 56, "56 elements")] {
            let text = describe(addr, stride, 64).unwrap_err().to_string();
            assert!(text.contains(want) && text.contains("A on rank 2"), "{text}");
        }
    }

    #[test]
    fn strides_that_no_multiple_follows_are_refused_for_their_size() {
        for row_stride in [u64::MAX, u64::MAX / 2, 1 << 39] {
            let text = describe(0x1000, row_stride, 64).unwrap_err().to_string();
            assert!(text.contains("row stride of A on rank 2") && text.contains("below 2^40 bytes"), "{text}");
        }
    }

    #[test]
    fn an_empty_matrix_needs_no_memory() {
        let none = MatrixArg { addr: 0, row_stride: 0 }.describe(ROLE, (0, 64), Element::Bf16, BOX);
        assert!(matches!(none, Ok(None)));
    }
}
