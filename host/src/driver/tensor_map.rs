//! Tensor maps: what the copy engine of an SM (TMA) knows of a matrix.

use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};

use super::gpu::Gpu;
use super::status::check as call;
use crate::error::{Error, Result};
use crate::kernels::abi::TensorMap;
use crate::kernels::config::{Element, ROW_BYTES};
use crate::kernels::shape::GlobalAddr;

/// A row-major matrix, and the box in which it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix<'a> {
    /// What the caller calls it, for messages.
    pub name: &'a str,
    /// Address of its first element, on this GPU or a mapped peer.
    pub base: GlobalAddr,
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub cols: u64,
    /// Bytes from one row to the next.
    pub row_stride_bytes: u64,
    /// Type of its elements.
    pub element: Element,
    /// Rows of a box.
    pub box_rows: u32,
    /// Bytes of a row of a box: at most [`ROW_BYTES`], which is what its rows are apart in shared memory.
    pub box_row_bytes: u32,
    /// Bytes that L2 fetches from memory together: 64, 128 or 256.
    pub fetch_bytes: u32,
}

const MAX_EXTENT: u64 = 1 << 32;
const MAX_STRIDE_BYTES: u64 = 1 << 40;
const ALIGN_BYTES: u64 = 16;

/// Whether the copy engine can handle the matrix. Asks nothing of the machine.
///
/// # Errors
/// [`Error::Argument`] with the operand, its value and the rule; a matrix that obeys every rule can be encoded.
pub fn check(matrix: &Matrix<'_>) -> Result<()> {
    let refuse = |what: &str, value: String, rule: String| {
        Err(Error::argument(format!("{}'s {what}", matrix.name), value, rule))
    };
    let Matrix { base, rows, cols, row_stride_bytes: stride, .. } = *matrix;
    if base.0 == 0 {
        return refuse("address", "null".into(), "it must be the address of the matrix in device memory".into());
    }
    if !base.0.is_multiple_of(ALIGN_BYTES) {
        return refuse("address", format!("{:#x}", base.0), format!("it must be a multiple of {ALIGN_BYTES} bytes"));
    }
    for (what, extent) in [("number of rows", rows), ("number of columns", cols)] {
        if !(1..=MAX_EXTENT).contains(&extent) {
            return refuse(what, extent.to_string(), "it must be from 1 to 4294967296".into());
        }
    }
    let row_bytes = cols * u64::from(matrix.element.bytes());
    let least = row_bytes.next_multiple_of(ALIGN_BYTES);
    if stride < row_bytes {
        return refuse(
            "row stride",
            format!("{stride} bytes"),
            format!("{cols} columns of {:?} take {row_bytes} bytes, so it must be at least {least}", matrix.element),
        );
    }
    if !stride.is_multiple_of(ALIGN_BYTES) {
        let next = stride.next_multiple_of(ALIGN_BYTES);
        return refuse(
            "row stride",
            format!("{stride} bytes"),
            format!("it must be a multiple of {ALIGN_BYTES} bytes: lay the rows {next} bytes apart"),
        );
    }
    if stride >= MAX_STRIDE_BYTES {
        return refuse("row stride", format!("{stride} bytes"), format!("it must be below {MAX_STRIDE_BYTES} bytes"));
    }
    if !(1..=256).contains(&matrix.box_rows) {
        return refuse("box", format!("{} rows", matrix.box_rows), "a box has 1 to 256 rows".into());
    }
    let bytes = matrix.box_row_bytes;
    if !(1..=ROW_BYTES).contains(&bytes) || !u64::from(bytes).is_multiple_of(ALIGN_BYTES) {
        let rule = format!("its rows have a multiple of {ALIGN_BYTES} bytes, at most {ROW_BYTES}");
        return refuse("box", format!("{bytes} bytes wide"), rule);
    }
    let fetch = matrix.fetch_bytes;
    if !matches!(fetch, 64 | 128 | 256) {
        return refuse("fetch", format!("{fetch} bytes"), "L2 fetches 64, 128 or 256 bytes together".into());
    }
    Ok(())
}

/// The tensor map of a matrix: boxes of `box_rows` rows, in shared memory [`ROW_BYTES`] apart with the 128-byte
/// swizzle, and zeros outside the matrix.
///
/// # Errors
/// Those of [`check`], and [`Error::Driver`].
pub fn encode(gpu: &Gpu, matrix: &Matrix<'_>) -> Result<TensorMap> {
    check(matrix)?;
    let data_type = match matrix.element {
        Element::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        Element::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Element::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        // The copy engine knows no 8-bit floats; to it they are bytes.
        Element::E4m3 | Element::E5m2 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    };
    // Innermost dimension first. Strides leave that one out.
    let extents = [matrix.cols, matrix.rows];
    let strides = [matrix.row_stride_bytes];
    let box_extents = [matrix.box_row_bytes / matrix.element.bytes(), matrix.box_rows];
    let element_strides = [1, 1];
    // The driver wants this aligned more strictly than the kernels' struct is, hence the copy below.
    let mut map = CUtensorMap { opaque: [0; 16] };
    let _entered = gpu.enter()?;
    // SAFETY: `map` is aligned as the bindings demand, and the arrays have as many entries as a matrix has dimensions
    // (strides one fewer). The address is written into the map, not followed.
    let status = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            data_type,
            2,
            std::ptr::without_provenance_mut(matrix.base.0 as usize),
            extents.as_ptr(),
            strides.as_ptr(),
            box_extents.as_ptr(),
            element_strides.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            match matrix.fetch_bytes {
                64 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
                128 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                _ => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            },
            // Zeros; the other fill is NaN.
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    call("cuTensorMapEncodeTiled", status)?;
    Ok(TensorMap(map.opaque))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn operand() -> Matrix<'static> {
        Matrix {
            name: "A",
            base: GlobalAddr(0x7f00_0000_0000),
            rows: 128,
            cols: 64,
            row_stride_bytes: 128,
            element: Element::Bf16,
            box_rows: 128,
            box_row_bytes: ROW_BYTES,
            fetch_bytes: 256,
        }
    }

    fn refusal(matrix: &Matrix<'_>) -> String {
        check(matrix).expect_err("this matrix must be refused").to_string()
    }

    #[test]
    fn an_address_must_be_there_and_aligned() {
        assert!(refusal(&Matrix { base: GlobalAddr(0), ..operand() }).starts_with("A's address is null"));
        let message = refusal(&Matrix { base: GlobalAddr(0x7f00_0000_0008), ..operand() });
        assert_eq!(message, "A's address is 0x7f0000000008, but it must be a multiple of 16 bytes");
    }

    #[test]
    fn obeying_the_stride_message_makes_the_matrix_acceptable() {
        // Columns from the field: K and N of 1, 7, 8, 9, 105, 107, with rows one after the other or one element apart.
        for element in [Element::Bf16, Element::F16, Element::F32, Element::E4m3, Element::E5m2] {
            for cols in [1, 7, 8, 9, 105, 107] {
                for gap in [0, 1, 8] {
                    let stride = (cols + gap) * u64::from(element.bytes());
                    let matrix = Matrix { cols, row_stride_bytes: stride, element, ..operand() };
                    if stride.is_multiple_of(16) {
                        check(&matrix).unwrap();
                        continue;
                    }
                    let message = refusal(&matrix);
                    let obeyed = stride.next_multiple_of(16);
                    assert!(message.contains(&format!("A's row stride is {stride} bytes")), "{message}");
                    assert!(message.ends_with(&format!("lay the rows {obeyed} bytes apart")), "{message}");
                    check(&Matrix { row_stride_bytes: obeyed, ..matrix }).unwrap();
                }
            }
        }
    }

    #[test]
    fn rows_must_not_overlap() {
        let message = refusal(&Matrix { cols: 105, row_stride_bytes: 208, ..operand() });
        assert!(message.contains("105 columns of Bf16 take 210 bytes, so it must be at least 224"), "{message}");
        check(&Matrix { cols: 105, row_stride_bytes: 224, ..operand() }).unwrap();
    }

    #[test]
    fn extents_strides_and_boxes_have_bounds() {
        let wide = |cols| Matrix { cols, row_stride_bytes: 1 << 34, ..operand() };
        check(&wide(1 << 32)).unwrap();
        assert!(refusal(&wide((1 << 32) + 1)).contains("A's number of columns is 4294967297"));
        assert!(refusal(&Matrix { rows: 0, ..operand() }).contains("A's number of rows is 0"));
        assert!(refusal(&Matrix { cols: 0, ..operand() }).contains("A's number of columns is 0"));
        check(&Matrix { row_stride_bytes: (1 << 40) - 16, ..operand() }).unwrap();
        check(&Matrix { box_row_bytes: 96, ..operand() }).unwrap();
        assert!(refusal(&Matrix { box_row_bytes: 144, ..operand() }).starts_with("A's box is 144 bytes wide"));
        assert!(refusal(&Matrix { box_row_bytes: 24, ..operand() }).contains("a multiple of 16 bytes, at most 128"));
        assert!(refusal(&Matrix { row_stride_bytes: 1 << 40, ..operand() }).contains("must be below 1099511627776"));
        check(&Matrix { box_rows: 256, ..operand() }).unwrap();
        assert!(refusal(&Matrix { box_rows: 257, ..operand() }).contains("A's box is 257 rows"));
        assert!(refusal(&Matrix { box_rows: 0, ..operand() }).contains("A's box is 0 rows"));
        check(&Matrix { fetch_bytes: 64, ..operand() }).unwrap();
        assert!(refusal(&Matrix { fetch_bytes: 32, ..operand() }).starts_with("A's fetch is 32 bytes"));
    }

    proptest! {
        #[test]
        fn no_matrix_makes_the_check_panic(base: u64, rows: u64, cols: u64, stride: u64, box_rows: u32) {
            let base = GlobalAddr(base);
            let _ = check(&Matrix { base, rows, cols, row_stride_bytes: stride, box_rows, ..operand() });
        }
    }
}
