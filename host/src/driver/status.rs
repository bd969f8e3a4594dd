//! Driver status codes as errors.

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::{self, CUresult};

use super::library;
use crate::error::{Error, Result};

/// Turns a status into a result. `call` is the driver's function.
pub(crate) fn check(call: &'static str, status: CUresult) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(call, status)) }
}

/// The error that `status` stands for.
pub(crate) fn failure(call: &'static str, status: CUresult) -> Error {
    let text = describe(status);
    let text = match status as u32 {
        code if is_sticky(code) => {
            format!("an earlier CUDA error is pending: {text}; this process cannot use the GPU's context any more")
        }
        _ => text,
    };
    Error::Driver { call, code: format!("{status:?}"), text }
}

/// Whether an error stays with the context: every later call reports it, whoever caused it.
///
/// Such codes are reported by the first call that looks after the kernel at fault ran, so they never mean that call.
pub(crate) const fn is_sticky(code: u32) -> bool {
    // ECC, NVLink and contained errors; illegal address, timeout, destroyed context, assert; then stack, instruction,
    // alignment, address space, program counter, unspecified failure; tensor memory leak.
    matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721)
}

fn describe(status: CUresult) -> String {
    if !library::is_open() {
        return "the CUDA driver is not open".to_string();
    }
    let mut text = ptr::null();
    // SAFETY: the library is open, and `text` is a valid place for a pointer.
    let found = unsafe { sys::cuGetErrorString(status, &mut text) };
    if found != CUresult::CUDA_SUCCESS || text.is_null() {
        return "the driver has no text for this code".to_string();
    }
    // SAFETY: the driver returned a static NUL-terminated string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_is_no_error() {
        assert!(check("cuInit", CUresult::CUDA_SUCCESS).is_ok());
    }

    #[test]
    fn an_error_names_the_call_and_the_code() {
        let message = failure("cuMemAlloc", CUresult::CUDA_ERROR_OUT_OF_MEMORY).to_string();
        assert!(message.starts_with("cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY ("), "{message}");
        assert!(!message.contains("pending"), "{message}");
    }

    #[test]
    fn a_sticky_error_is_named_as_an_earlier_one() {
        let message = failure("cuLaunchKernelEx", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).to_string();
        assert!(message.contains("an earlier CUDA error is pending"), "{message}");
    }

    #[test]
    fn errors_of_the_call_itself_are_not_sticky() {
        for status in [
            CUresult::CUDA_ERROR_INVALID_VALUE,
            CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            CUresult::CUDA_ERROR_NOT_READY,
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
            CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        ] {
            assert!(!is_sticky(status as u32), "{status:?}");
        }
    }
}
