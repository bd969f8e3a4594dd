//! What the tensor maps of a call describe.

use crate::error::Result;
use crate::kernels::abi::{MAPS, Operand};
use crate::kernels::entries::{Entry, Op};
use crate::plan::Variant;
use crate::plan::operand::{L2Fetch, MapSpec, MatrixArg, MatrixRole};

/// Describes A, B and D of one rank: `[m, rows of D, n, k]`.
pub(crate) fn maps(
    variant: Variant,
    entry: &Entry,
    [m, d_rows, n, k]: [u32; 4],
    [a, b, d]: [MatrixArg; 3],
    rank: usize,
) -> Result<[Option<MapSpec>; MAPS]> {
    let role = |name| MatrixRole { name, rank };
    // A product without rows or without columns reads neither A nor B.
    let (m, n) = if m == 0 || n == 0 { (0, 0) } else { (m, n) };
    let (a_shape, b_shape) =
        (variant.layout.a_shape(m as usize, k as usize), variant.layout.b_shape(n as usize, k as usize));
    let d_map = d.describe(role("D"), (d_rows as usize, n as usize), variant.output, entry.boxes[2])?;
    // Kernels cut A's box to the rows of a call in the same way. Those for few rows of every rank store no box of D; with an
    // epilogue, C must fit it.
    let (a_box, d_map) = match entry.op {
        Op::FewRowsReduceScatterEpilogue | Op::LowLatencyReduceScatterEpilogue => (entry.boxes[0].cut_to(m), d_map),
        Op::FewRowsReduceScatter | Op::LowLatencyReduceScatter => (entry.boxes[0].cut_to(m), None),
        Op::Gemm | Op::GemmPingPong | Op::GemmEpilogue => (entry.boxes[0].of_rows(entry.majors[0], m), d_map),
        _ => (entry.boxes[0], d_map),
    };
    Ok([
        a.describe(role("A"), a_shape, variant.input, a_box)?,
        b.describe(role("B"), b_shape, variant.input_b, entry.boxes[1])?
            .map(|b| MapSpec { fetch: L2Fetch::of_b(m), ..b }),
        d_map,
        None,
    ])
}

/// Maps of a call whose tiles have `cols` columns, fewer than the kernel's: it cuts the boxes of B and D in the same way.
pub(crate) fn cut_to_columns(mut maps: [Option<MapSpec>; MAPS], entry: &Entry, cols: u32) -> [Option<MapSpec>; MAPS] {
    if let Some(b) = &mut maps[Operand::B as usize] {
        b.tile_box = entry.boxes[1].cut_to(cols);
    }
    if let Some(d) = &mut maps[Operand::D as usize] {
        d.box_row_bytes = cols * entry.output.bytes();
    }
    maps
}
