//! Whether the CUDA driver is there.

use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

use super::capability::{self, MIN_DRIVER};
use crate::error::{Error, Result};

/// Whether the CUDA driver can be opened, starts, is new enough and finds a GPU.
///
/// The first call does the work, the others repeat its answer. No context is made.
///
/// # Errors
/// [`Error::NoGpu`] with what was found.
pub fn available() -> Result<()> {
    driver_version().map(|_| ())
}

/// The CUDA version of the driver, 1000 · major + 10 · minor: 13000 for CUDA 13.0.
///
/// # Errors
/// [`Error::NoGpu`] as in [`available`].
pub fn driver_version() -> Result<u32> {
    match STATE.get_or_init(start) {
        Ok(version) => Ok(*version),
        Err(found) => Err(Error::NoGpu { found: found.clone(), needed: capability::NEEDED.to_string() }),
    }
}

/// Whether [`available`] has succeeded, so that driver calls find their symbols.
pub(crate) fn is_open() -> bool {
    matches!(STATE.get(), Some(Ok(_)))
}

/// A function of the driver by name, for those that cudarc's bindings of this CUDA version lack.
///
/// # Safety
/// `F` is the function's type.
pub(crate) unsafe fn symbol<F: Copy>(name: &'static str) -> Result<F> {
    available()?;
    // SAFETY: the library is open, so culib does not panic; the caller vouches for the type.
    let found = unsafe { sys::culib().get::<F>(name.as_bytes()).map(|f| *f) };
    found.map_err(|e| Error::Driver { call: name, code: "missing symbol".to_string(), text: e.to_string() })
}

static STATE: OnceLock<Result<u32, String>> = OnceLock::new();

/// Functions that this crate calls through cudarc. cudarc panics at the first call of one that the library lacks, so
/// they are looked for once, here.
const REQUIRED: &[&str] = &[
    "cuCtxEnablePeerAccess",
    "cuCtxGetCurrent",
    "cuCtxGetStreamPriorityRange",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyAsync",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCtx",
    "cuStreamGetId",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
    "cuTensorMapEncodeTiled",
    "cuThreadExchangeStreamCaptureMode",
];

fn start() -> Result<u32, String> {
    // SAFETY: opening the driver runs only its own initialisers.
    if !unsafe { sys::is_culib_present() } {
        return Err("the CUDA driver library (libcuda.so.1) cannot be opened".to_string());
    }
    // The version first: of an old driver it says more than the name of a function.
    require(&["cuDriverGetVersion"])?;
    let (mut version, mut count) = (0, 0);
    // SAFETY: the pointer is to a live integer; the function needs no cuInit.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    if status != CUresult::CUDA_SUCCESS {
        return Err(format!("the CUDA driver does not tell its version: {status:?}"));
    }
    let version = u32::try_from(version).unwrap_or(0);
    if version < MIN_DRIVER {
        return Err(format!("a driver for CUDA {}", capability::cuda_version(version)));
    }
    require(REQUIRED)?;
    // SAFETY: cuInit may be called any number of times; 0 is its only flag.
    let status = unsafe { sys::cuInit(0) };
    if status != CUresult::CUDA_SUCCESS {
        return Err(format!("the CUDA driver does not start: cuInit returned {status:?}"));
    }
    // SAFETY: the pointer is to a live integer.
    let status = unsafe { sys::cuDeviceGetCount(&mut count) };
    match status {
        CUresult::CUDA_SUCCESS if count > 0 => Ok(version),
        CUresult::CUDA_SUCCESS => Err("a CUDA driver, but no GPU that this process may use".to_string()),
        status => Err(format!("the CUDA driver cannot count GPUs: {status:?}")),
    }
}

fn require(names: &[&str]) -> Result<(), String> {
    for name in names {
        // SAFETY: the symbol is looked up, not called.
        if unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(format!("the CUDA driver library lacks {name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every driver function called through cudarc, in the sources of this folder.
    fn called() -> Vec<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/host/src/driver");
        let mut names = Vec::new();
        let files = std::fs::read_dir(folder).expect("the driver's sources").flatten().map(|file| file.path());
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            let text = std::fs::read_to_string(file).expect("a source file");
            for part in text.split("sys::cu").skip(1) {
                let name: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let is_call = part[name.len()..].starts_with('(');
                if is_call && name != "lib" {
                    names.push(format!("cu{name}"));
                }
            }
        }
        names.sort();
        names.dedup();
        names
    }

    #[test]
    fn required_lists_every_function_that_is_called() {
        let mut listed = REQUIRED.to_vec();
        listed.sort_unstable();
        assert_eq!(called(), listed);
    }

    #[test]
    fn a_missing_driver_is_an_error_and_not_a_panic() {
        if let Err(e) = available() {
            let text = e.to_string();
            assert!(text.starts_with("no usable GPU: "), "{text}");
            assert!(text.contains("needed: "), "{text}");
        }
    }
}
