//! A matrix multiplication that cuBLASLt has algorithms for.

use std::ffi::c_void;
use std::ptr;

use cudarc::cublaslt::sys::{self, cublasLtMatmulHeuristicResult_t, cublasStatus_t};

use super::descriptor::{MatrixLayout, Operation, Preference};
use super::{ALIGN_BYTES, CublasLt, Fp8, GemmShape, MAX_ALGORITHMS, WORKSPACE_BYTES, check, failure};
use crate::driver::{DeviceBuffer, Event, Gpu, Stream};
use crate::error::{Error, Result};
use crate::kernels::config::Element;
use crate::kernels::shape::GlobalAddr;

/// A shape with its algorithms and workspace. One stream at a time, because of the workspace.
pub struct GemmPlan {
    lt: CublasLt,
    operation: Operation,
    /// Of cuBLASLt's first and second operand and its result.
    layouts: [MatrixLayout; 3],
    algorithms: Vec<cublasLtMatmulHeuristicResult_t>,
    selected: usize,
    workspace: DeviceBuffer,
}

// SAFETY: cuBLASLt's descriptors are plain memory, changed by nobody after construction.
unsafe impl Send for GemmPlan {}

impl GemmPlan {
    pub(super) fn new(lt: &CublasLt, shape: &GemmShape, fp8: &Fp8) -> Result<Self> {
        shape.check()?;
        let gpu = lt.gpu();
        let _entered = gpu.enter()?;
        let [b, a, d] = shape.column_major();
        let is_fp8 = shape.input == Element::E4m3;
        let mut plan = Self {
            lt: lt.clone(),
            operation: Operation::new(b.transposed, a.transposed)?,
            layouts: [
                MatrixLayout::new(b, if is_fp8 { fp8.b } else { shape.input })?,
                MatrixLayout::new(a, shape.input)?,
                MatrixLayout::new(d, shape.output)?,
            ],
            algorithms: Vec::new(),
            selected: 0,
            workspace: DeviceBuffer::new(gpu, WORKSPACE_BYTES)?,
        };
        if is_fp8 {
            // Our B is cuBLASLt's first operand.
            plan.operation.set_fp8(fp8.fast_accumulation, [fp8.scales[1], fp8.scales[0]])?;
        }
        let preference = Preference::new()?;
        // SAFETY: an all-zero result is valid: its status is success, the rest are numbers.
        let empty: cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = [empty; MAX_ALGORITHMS];
        let mut count = 0;
        let [b, a, d] = [0, 1, 2].map(|i| plan.layouts[i].0);
        // SAFETY: every descriptor is alive, and `found` has room for as many results as are asked for.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                lt.handle(),
                plan.operation.0,
                b,
                a,
                d,
                d,
                preference.0,
                MAX_ALGORITHMS as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let found = found.iter().take(usize::try_from(count).unwrap_or(0));
        let works = |result: &&cublasLtMatmulHeuristicResult_t| result.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        plan.algorithms = found.filter(works).copied().collect();
        if plan.algorithms.is_empty() {
            return Err(failure("cublasLtMatmulAlgoGetHeuristic", cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
        }
        Ok(plan)
    }

    /// The GPU that it is for.
    pub fn gpu(&self) -> &Gpu {
        self.lt.gpu()
    }

    /// Algorithms to choose from; the first is cuBLASLt's choice and is selected at first.
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// The algorithm that [`run`](Self::run) uses.
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// Selects an algorithm.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is none of this number.
    pub fn select(&mut self, algorithm: usize) -> Result<()> {
        if algorithm >= self.algorithms.len() {
            let rule = format!("there are {}, from 0", self.algorithms.len());
            return Err(Error::argument("algorithm", algorithm, rule));
        }
        self.selected = algorithm;
        Ok(())
    }

    /// Multiplies, in `stream`, with the selected algorithm.
    ///
    /// # Safety
    /// The addresses are of device memory as large as the plan's shape says, which is there, and free of conflicting
    /// accesses, until the work has ended. No other stream runs this plan meanwhile.
    ///
    /// # Errors
    /// [`Error::Argument`] for an address that is not a multiple of 256 bytes, which the algorithms count on;
    /// [`Error::Driver`].
    pub unsafe fn run(&self, stream: &Stream, a: GlobalAddr, b: GlobalAddr, d: GlobalAddr) -> Result<()> {
        for (what, addr) in [("A's address", a), ("B's address", b), ("D's address", d)] {
            if addr.0 == 0 || !addr.0.is_multiple_of(ALIGN_BYTES) {
                let rule = format!("it must be a multiple of {ALIGN_BYTES} bytes, and not null");
                return Err(Error::argument(what, format!("{:#x}", addr.0), rule));
            }
        }
        let (alpha, beta) = (1.0f32, 0.0f32);
        let pointer = |addr: GlobalAddr| ptr::without_provenance_mut::<c_void>(addr.0 as usize);
        let [b_layout, a_layout, d_layout] = [0, 1, 2].map(|i| self.layouts[i].0);
        let _entered = self.gpu().enter()?;
        // SAFETY: the descriptors and the workspace are alive; the scalars are f32 in host memory, as the operation
        // says, and read during the call; the caller vouches for the addresses. D stands for C, which beta = 0 leaves
        // unread.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.lt.handle(),
                self.operation.0,
                ptr::from_ref(&alpha).cast(),
                pointer(b),
                b_layout,
                pointer(a),
                a_layout,
                ptr::from_ref(&beta).cast(),
                pointer(d),
                d_layout,
                pointer(d),
                d_layout,
                &self.algorithms[self.selected].algo,
                pointer(self.workspace.addr()),
                self.workspace.bytes(),
                stream.raw().cast(),
            )
        };
        check("cublasLtMatmul", status)?;
        self.workspace.record_use(stream)
    }

    /// Times every algorithm with events, `runs` runs each after one to warm up, selects the fastest and returns its
    /// seconds a run. Waits for the stream.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    ///
    /// # Errors
    /// As for [`run`](Self::run). An algorithm that fails is passed over, unless all do.
    pub unsafe fn select_fastest(
        &mut self,
        stream: &Stream,
        a: GlobalAddr,
        b: GlobalAddr,
        d: GlobalAddr,
        runs: u32,
    ) -> Result<f64> {
        let (start, end) = (Event::timed(self.gpu())?, Event::timed(self.gpu())?);
        let mut best = Err(failure("cublasLtMatmul", cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
        for algorithm in 0..self.algorithms() {
            self.selected = algorithm;
            // SAFETY: the caller vouches for it.
            if let Err(error) = unsafe { self.run(stream, a, b, d) } {
                best = best.or(Err(error));
                continue;
            }
            start.record(stream)?;
            for _ in 0..runs.max(1) {
                // SAFETY: as above.
                unsafe { self.run(stream, a, b, d) }?;
            }
            end.record(stream)?;
            end.synchronize()?;
            let seconds = end.seconds_since(&start)? / f64::from(runs.max(1));
            if best.as_ref().map_or(true, |(_, least)| seconds < *least) {
                best = Ok((algorithm, seconds));
            }
        }
        let (algorithm, seconds) = best.inspect_err(|_| self.selected = 0)?;
        self.selected = algorithm;
        Ok(seconds)
    }
}
