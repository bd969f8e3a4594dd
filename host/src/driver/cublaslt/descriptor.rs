//! cuBLASLt's descriptors, destroyed when they are dropped.

use std::mem::size_of_val;
use std::ptr;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cudaDataType_t,
};

use super::{Stored, WORKSPACE_BYTES, check};
use crate::error::Result;
use crate::kernels::config::Element;
use crate::kernels::shape::GlobalAddr;

/// `cublasOperation_t`, which the bindings of cuBLASLt leave out: as it lies, or transposed.
const OPERATIONS: [i32; 2] = [0, 1];

/// What is computed: f32 sums of products, operands transposed or not.
pub(super) struct Operation(pub(super) cublasLtMatmulDesc_t);

impl Operation {
    pub(super) fn new(first_transposed: bool, second_transposed: bool) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the library is open and `raw` a live place.
        let status = unsafe {
            sys::cublasLtMatmulDescCreate(&mut raw, cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F)
        };
        check("cublasLtMatmulDescCreate", status)?;
        let operation = Self(raw);
        for (attribute, transposed) in [
            (cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, first_transposed),
            (cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, second_transposed),
        ] {
            operation.set(attribute, &OPERATIONS[usize::from(transposed)])?;
        }
        Ok(operation)
    }

    /// For 8-bit operands: how sums are kept, and where the scales of the first and second operand lie.
    pub(super) fn set_fp8(&self, fast_accumulation: bool, scales: [Option<GlobalAddr>; 2]) -> Result<()> {
        self.set(cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_FAST_ACCUM, &i8::from(fast_accumulation))?;
        for (attribute, scale) in [
            (cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales[0]),
            (cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales[1]),
        ] {
            if let Some(scale) = scale {
                self.set(attribute, &scale.0)?;
            }
        }
        Ok(())
    }

    /// Sets an attribute; `value` is of the attribute's type.
    fn set<T: Copy>(&self, attribute: cublasLtMatmulDescAttributes_t, value: &T) -> Result<()> {
        // SAFETY: the descriptor is alive; the attribute is read during the call, and cuBLASLt refuses a wrong size.
        let status = unsafe {
            sys::cublasLtMatmulDescSetAttribute(self.0, attribute, ptr::from_ref(value).cast(), size_of_val(value))
        };
        check("cublasLtMatmulDescSetAttribute", status)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { sys::cublasLtMatmulDescDestroy(self.0) };
    }
}

/// A column-major matrix without gaps.
pub(super) struct MatrixLayout(pub(super) cublasLtMatrixLayout_t);

impl MatrixLayout {
    pub(super) fn new(stored: Stored, element: Element) -> Result<Self> {
        let data_type = match element {
            Element::Bf16 => cudaDataType_t::CUDA_R_16BF,
            Element::F16 => cudaDataType_t::CUDA_R_16F,
            Element::F32 => cudaDataType_t::CUDA_R_32F,
            Element::E4m3 => cudaDataType_t::CUDA_R_8F_E4M3,
            Element::E5m2 => cudaDataType_t::CUDA_R_8F_E5M2,
        };
        let mut raw = ptr::null_mut();
        let leading = stored.rows.cast_signed();
        // SAFETY: the library is open and `raw` a live place.
        let status = unsafe { sys::cublasLtMatrixLayoutCreate(&mut raw, data_type, stored.rows, stored.cols, leading) };
        check("cublasLtMatrixLayoutCreate", status)?;
        Ok(Self(raw))
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { sys::cublasLtMatrixLayoutDestroy(self.0) };
    }
}

/// What algorithms may use.
pub(super) struct Preference(pub(super) cublasLtMatmulPreference_t);

impl Preference {
    pub(super) fn new() -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the library is open and `raw` a live place.
        check("cublasLtMatmulPreferenceCreate", unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) })?;
        let preference = Self(raw);
        let (attribute, bytes) =
            (cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE_BYTES as u64);
        // SAFETY: the descriptor is alive; the attribute is a 64-bit number, read during the call.
        let status = unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(raw, attribute, ptr::from_ref(&bytes).cast(), size_of_val(&bytes))
        };
        check("cublasLtMatmulPreferenceSetAttribute", status)?;
        Ok(preference)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}
