//! cuBLASLt, for comparison in benchmarks: `D = A · B` in the three layouts, 16-bit or 8-bit
//! inputs, f32 accumulation.

mod descriptor;
mod plan;

use std::ffi::CStr;
use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::cublaslt::sys::{self, cublasLtHandle_t, cublasStatus_t};
use libloading::Library;
pub use plan::GemmPlan;

use super::dynamic;
use super::gpu::Gpu;
use crate::error::{Error, Result};
use crate::kernels::config::Element;
use crate::kernels::shape::GlobalAddr;

/// Workspace of a plan, in bytes.
pub const WORKSPACE_BYTES: usize = 64 << 20;
/// Algorithms that a plan asks cuBLASLt for.
pub const MAX_ALGORITHMS: usize = 8;
/// Alignment that cuBLASLt's heuristics assume unless they are told otherwise.
const ALIGN_BYTES: u64 = 256;

/// How the operands lie, both row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// A is M×K, B is N×K: `D = A · Bᵀ`.
    Nt,
    /// A is M×K, B is K×N: `D = A · B`.
    Nn,
    /// A is K×M, B is K×N: `D = Aᵀ · B`.
    Tn,
}

/// A matrix multiplication. Rows lie one after the other, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmShape {
    /// How the operands lie.
    pub layout: Layout,
    /// Rows of D.
    pub m: u64,
    /// Columns of D.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Type of A and B: bf16, f16 or e4m3.
    pub input: Element,
    /// Type of D.
    pub output: Element,
}

/// What there is to say of a product of 8-bit operands besides its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fp8 {
    /// Type of B: e4m3 or e5m2.
    pub b: Element,
    /// Whether sums may stay in the tensor cores, which keep fewer bits than f32 has.
    pub fast_accumulation: bool,
    /// Where A's and B's scales lie, f32 in device memory; 1 where there is none.
    pub scales: [Option<GlobalAddr>; 2],
}

impl Fp8 {
    /// e4m3 in both operands, sums promoted to f32, no scales.
    pub const E4M3: Self = Self { b: Element::E4m3, fast_accumulation: false, scales: [None; 2] };
}

/// What cuBLASLt, which is column-major, is told about an operand: rows, columns, whether it is transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    rows: u64,
    cols: u64,
    transposed: bool,
}

impl GemmShape {
    /// cuBLASLt's first operand (our B), second operand (our A) and result.
    ///
    /// A row-major matrix is the transpose of a column-major one, so `Dᵀ = op(B)ᵀ · op(A)ᵀ` is what is computed.
    fn column_major(&self) -> [Stored; 3] {
        let Self { m, n, k, .. } = *self;
        let stored = |rows, cols, transposed| Stored { rows, cols, transposed };
        let b = if self.layout == Layout::Nt { stored(k, n, true) } else { stored(n, k, false) };
        let a = if self.layout == Layout::Tn { stored(m, k, true) } else { stored(k, m, false) };
        [b, a, stored(n, m, false)]
    }

    fn check(&self) -> Result<()> {
        for (what, extent) in [("m", self.m), ("n", self.n), ("k", self.k)] {
            if extent == 0 || i64::try_from(extent).is_err() {
                return Err(Error::argument(what, extent, "cuBLASLt multiplies matrices of at least one element"));
            }
        }
        if matches!(self.input, Element::F32 | Element::E5m2) {
            return Err(Error::argument("input", self.input.name(), "A is bf16, f16 or e4m3"));
        }
        if self.input == Element::E4m3 && self.layout != Layout::Nt {
            return Err(Error::argument("layout", format!("{:?}", self.layout), "8-bit operands are nt"));
        }
        Ok(())
    }
}

/// cuBLASLt on one GPU.
#[derive(Clone)]
pub struct CublasLt(Arc<Inner>);

struct Inner {
    gpu: Gpu,
    handle: cublasLtHandle_t,
}

// SAFETY: cuBLASLt handles may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl CublasLt {
    /// Opens the library, once a process, and makes a handle.
    ///
    /// # Errors
    /// [`Error::Driver`] when the library cannot be opened or does not start.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        available()?;
        let _entered = gpu.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the library is open, the context current, and `handle` a live place.
        check("cublasLtCreate", unsafe { sys::cublasLtCreate(&mut handle) })?;
        Ok(Self(Arc::new(Inner { gpu: gpu.clone(), handle })))
    }

    /// The GPU that it is for.
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn handle(&self) -> cublasLtHandle_t {
        self.0.handle
    }

    /// The library's version, 10000 · major + 100 · minor + patch.
    pub fn version(&self) -> usize {
        // SAFETY: the library is open.
        unsafe { sys::cublasLtGetVersion() }
    }

    /// Algorithms for a shape, the one that cuBLASLt thinks fastest first.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty matrix or f32 inputs; [`Error::Driver`], for one when it knows no algorithm.
    pub fn plan(&self, shape: &GemmShape) -> Result<GemmPlan> {
        GemmPlan::new(self, shape, &Fp8::E4M3)
    }

    /// The same for a product of 8-bit operands. Scales that are given stay where they are as long as the plan is used.
    ///
    /// # Errors
    /// As for [`Self::plan`]; [`Error::Argument`] for other types of A or B.
    pub fn plan_fp8(&self, shape: &GemmShape, fp8: &Fp8) -> Result<GemmPlan> {
        if shape.input != Element::E4m3 {
            return Err(Error::argument("input", shape.input.name(), "A is e4m3"));
        }
        if !matches!(fp8.b, Element::E4m3 | Element::E5m2) {
            return Err(Error::argument("type of B", fp8.b.name(), "it is e4m3 or e5m2"));
        }
        GemmPlan::new(self, shape, fp8)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: made by `new`, destroyed once. A failure cannot be helped.
            let _ = unsafe { sys::cublasLtDestroy(self.handle) };
        }
    }
}

/// Opens the library and keeps it: cudarc, which would panic without it, then finds it open.
///
/// # Errors
/// [`Error::Driver`] when it cannot be opened or lacks a function.
pub fn available() -> Result<()> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if LIBRARY.get().is_none() {
        // cudarc's own list, so that it finds what is open.
        let names = cudarc::get_lib_name_candidates("cublasLt");
        let library = dynamic::open("opening cuBLASLt", "libcublasLt.so.13", &names)?;
        for name in REQUIRED {
            // SAFETY: the symbol is looked up, not called.
            if let Err(e) = unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) } {
                let text = e.to_string();
                return Err(Error::Driver { call: "opening cuBLASLt", code: format!("no {name}"), text });
            }
        }
        // Another thread may have been faster; its library is the same one.
        let _ = LIBRARY.set(library);
    }
    Ok(())
}

/// Functions that are called through cudarc.
const REQUIRED: &[&str] = &[
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetStatusString",
    "cublasLtGetVersion",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
];

fn check(call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS { Ok(()) } else { Err(failure(call, status)) }
}

fn failure(call: &'static str, status: cublasStatus_t) -> Error {
    // SAFETY: statuses come from the library, so it is open.
    let text = unsafe { sys::cublasLtGetStatusString(status) };
    let text = if text.is_null() {
        String::new()
    } else {
        // SAFETY: the library returned a static NUL-terminated string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Error::Driver { call, code: format!("{status:?}"), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(layout: Layout) -> GemmShape {
        GemmShape { layout, m: 2, n: 3, k: 4, input: Element::Bf16, output: Element::F32 }
    }

    /// `op(first) · op(second)` over column-major storage, as cuBLASLt computes it.
    fn multiply(shape: &GemmShape, a: &[f32], b: &[f32]) -> Vec<f32> {
        let [first, second, result] = shape.column_major();
        let at = |stored: Stored, data: &[f32], row: u64, col: u64| {
            let (row, col) = if stored.transposed { (col, row) } else { (row, col) };
            assert!(row < stored.rows && col < stored.cols);
            data[(row + col * stored.rows) as usize]
        };
        let mut d = vec![0.0; (shape.m * shape.n) as usize];
        for row in 0..result.rows {
            for col in 0..result.cols {
                let sum = (0..shape.k).map(|k| at(first, b, row, k) * at(second, a, k, col)).sum();
                d[(row + col * result.rows) as usize] = sum;
            }
        }
        d
    }

    #[test]
    fn the_column_major_view_gives_the_row_major_product() {
        let a = |i: u64, k: u64| (1 + i * 10 + k * k) as f32;
        let b = |j: u64, k: u64| (2 + j * 7 + k * 3) as f32;
        let laid = |rows: u64, cols: u64, f: &dyn Fn(u64, u64) -> f32| -> Vec<f32> {
            (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))).map(|(r, c)| f(r, c)).collect()
        };
        let expected = laid(2, 3, &|i, j| (0..4).map(|k| a(i, k) * b(j, k)).sum());
        for layout in [Layout::Nt, Layout::Nn, Layout::Tn] {
            let stored_a = if layout == Layout::Tn { laid(4, 2, &|k, i| a(i, k)) } else { laid(2, 4, &a) };
            let stored_b = if layout == Layout::Nt { laid(3, 4, &b) } else { laid(4, 3, &|k, j| b(j, k)) };
            assert_eq!(multiply(&shape(layout), &stored_a, &stored_b), expected, "{layout:?}");
        }
    }

    #[test]
    fn empty_matrices_and_f32_inputs_are_refused() {
        shape(Layout::Nt).check().unwrap();
        let message = GemmShape { k: 0, ..shape(Layout::Nt) }.check().unwrap_err().to_string();
        assert!(message.starts_with("k is 0, but"), "{message}");
        assert!(GemmShape { input: Element::F32, ..shape(Layout::Nt) }.check().is_err());
        let e4m3 = |layout| GemmShape { input: Element::E4m3, ..shape(layout) }.check();
        e4m3(Layout::Nt).unwrap();
        assert!(e4m3(Layout::Tn).unwrap_err().to_string().contains("8-bit operands are nt"));
    }
}
