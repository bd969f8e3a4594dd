//! Kernels: PTX compiled by the driver, and the functions in it.

use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule, CUresult};

use super::gpu::Gpu;
use super::library;
use super::status::{check, failure};
use crate::error::{Error, Result};
use crate::kernels::entries::Entry;

/// Bytes of each of the compiler's two logs that are kept.
const LOG_BYTES: usize = 16 * 1024;
/// First driver with `cuFuncLoad` and `cuFuncGetParamInfo`.
const FUNC_LOAD_DRIVER: u32 = 12_040;

/// PTX, compiled and loaded. Clones share it; unloaded when the last clone and the last function are gone.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    gpu: Gpu,
    raw: CUmodule,
    log: String,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing here changes after construction.
unsafe impl Sync for Inner {}

impl Module {
    /// Compiles and loads PTX text. Takes 0.1–1 s the first time; the driver caches what it compiled.
    ///
    /// # Errors
    /// [`Error::Driver`] with the compiler's log when it refuses the text; [`Error::Argument`] when the text has a NUL.
    pub fn load(gpu: &Gpu, ptx: &str) -> Result<Self> {
        let Ok(text) = CString::new(ptx) else {
            return Err(Error::argument("PTX", format!("{} bytes long", ptx.len()), "it must have no NUL byte"));
        };
        let (mut info, mut errors) = (vec![0u8; LOG_BYTES], vec![0u8; LOG_BYTES]);
        let mut options = [
            CUjit_option::CU_JIT_INFO_LOG_BUFFER,
            CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_LOG_VERBOSE,
        ];
        // Numbers travel in the place of the pointer.
        let mut values = [
            info.as_mut_ptr().cast::<c_void>(),
            ptr::without_provenance_mut(LOG_BYTES),
            errors.as_mut_ptr().cast(),
            ptr::without_provenance_mut(LOG_BYTES),
            ptr::without_provenance_mut(1),
        ];
        let _entered = gpu.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the text is NUL-terminated; both arrays have as many entries as is said, each value is what its
        // option takes, and the logs are as long as is said and outlive the call.
        let status = unsafe {
            sys::cuModuleLoadDataEx(
                &mut raw,
                text.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if status != CUresult::CUDA_SUCCESS {
            return Err(with_log(failure("cuModuleLoadDataEx", status), &log_text(&errors)));
        }
        Ok(Self(Arc::new(Inner { gpu: gpu.clone(), raw, log: log_text(&info) })))
    }

    /// What the compiler said: registers, spills, warnings. Empty when the driver's cache had the result.
    pub fn log(&self) -> &str {
        &self.0.log
    }

    /// The GPU that it is loaded on.
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// A kernel by name, loaded at once even under `CUDA_MODULE_LOADING=LAZY`: loading it later, under a kernel that
    /// waits for it, would deadlock.
    ///
    /// # Errors
    /// [`Error::Driver`], for one when there is no kernel of that name.
    pub fn function(&self, name: &str) -> Result<Function> {
        let Ok(c_name) = CString::new(name) else {
            return Err(Error::argument("kernel name", name.escape_debug(), "it must have no NUL byte"));
        };
        let _entered = self.0.gpu.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the module is alive and the name NUL-terminated.
        let status = unsafe { sys::cuModuleGetFunction(&mut raw, self.0.raw, c_name.as_ptr()) };
        if status != CUresult::CUDA_SUCCESS {
            return Err(with_log(failure("cuModuleGetFunction", status), &format!("no kernel named {name}")));
        }
        let mut function = Function { module: self.clone(), raw, name: name.to_string(), param_bytes: None };
        if library::driver_version()? >= FUNC_LOAD_DRIVER {
            function.load()?;
        } else {
            // Older drivers load a function when they are asked about it.
            function.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        }
        Ok(function)
    }

    /// The kernel of a table entry, with its shared memory allowed and its parameter's size checked.
    ///
    /// # Errors
    /// As in [`function`](Self::function); [`Error::Argument`] when the PTX does not agree with the table.
    pub fn entry(&self, entry: &Entry) -> Result<Function> {
        let function = self.function(entry.name)?;
        if let Some(bytes) = function.param_bytes.filter(|bytes| *bytes != entry.param_bytes) {
            let what = format!("parameter of {}", entry.name);
            return Err(Error::argument(what, format!("{bytes} bytes"), format!("the host has {}", entry.param_bytes)));
        }
        function.allow_dynamic_smem(entry.smem_bytes)?;
        Ok(function)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: loaded by `Module::load`, unloaded once. Failures at exit or after a fault cannot be helped.
            let _ = unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

/// A kernel of a module.
#[derive(Clone)]
pub struct Function {
    module: Module,
    raw: CUfunction,
    name: String,
    param_bytes: Option<usize>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; attributes are set under the driver's lock.
unsafe impl Sync for Function {}

/// What a kernel needs of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Registers a thread starts with.
    pub registers: u32,
    /// Local memory a thread, in bytes: 0 unless registers are spilled or arrays are indexed at run time.
    pub local_bytes: u32,
    /// Static shared memory a CTA, in bytes.
    pub static_smem_bytes: u32,
    /// Most threads a CTA may have.
    pub max_threads: u32,
}

impl Function {
    fn load(&mut self) -> Result<()> {
        // SAFETY: the function is of a live module; the driver is new enough for this type.
        let load = unsafe { library::symbol::<FuncLoad>("cuFuncLoad") }?;
        // SAFETY: the handle is alive.
        check("cuFuncLoad", unsafe { load(self.raw) })?;
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: as above.
        let info = unsafe { library::symbol::<FuncGetParamInfo>("cuFuncGetParamInfo") }?;
        // SAFETY: the handle is alive and both places are. A kernel without parameters is an error code.
        let status = unsafe { info(self.raw, 0, &mut offset, &mut bytes) };
        self.param_bytes = (status == CUresult::CUDA_SUCCESS).then_some(bytes);
        Ok(())
    }

    /// The module's GPU.
    pub fn gpu(&self) -> &Gpu {
        self.module.gpu()
    }

    /// Its name in the PTX.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The driver's handle. Valid while this lives.
    pub fn raw(&self) -> CUfunction {
        self.raw
    }

    /// Bytes of its first parameter, where the driver tells (from CUDA 12.4).
    pub fn param_bytes(&self) -> Option<usize> {
        self.param_bytes
    }

    /// Lets launches ask for up to `bytes` bytes of dynamic shared memory a CTA; needed above 48 KiB.
    ///
    /// # Errors
    /// [`Error::Driver`] when a CTA cannot have as much.
    pub fn allow_dynamic_smem(&self, bytes: u32) -> Result<()> {
        let _entered = self.gpu().enter()?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the handle is alive.
        let status = unsafe { sys::cuFuncSetAttribute(self.raw, attribute, bytes.cast_signed()) };
        check("cuFuncSetAttribute", status)
    }

    /// What it needs of an SM.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn facts(&self) -> Result<FunctionFacts> {
        use CUfunction_attribute as A;
        let _entered = self.gpu().enter()?;
        Ok(FunctionFacts {
            registers: self.attribute(A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: self.attribute(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_smem_bytes: self.attribute(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: self.attribute(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    fn attribute(&self, which: CUfunction_attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the handle is alive and `value` a live integer.
        check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut value, which, self.raw) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// CTAs of `threads` threads and `smem_bytes` bytes of dynamic shared memory that one SM holds at a time.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn max_ctas_per_sm(&self, threads: u32, smem_bytes: u32) -> Result<u32> {
        let _entered = self.gpu().enter()?;
        let mut ctas = 0;
        // SAFETY: the handle is alive and `ctas` a live integer.
        let status = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut ctas,
                self.raw,
                threads.cast_signed(),
                smem_bytes as usize,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)?;
        Ok(u32::try_from(ctas).unwrap_or(0))
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({}, GPU {})", self.name, self.gpu().ordinal())
    }
}

type FuncLoad = unsafe extern "C" fn(CUfunction) -> CUresult;
type FuncGetParamInfo = unsafe extern "C" fn(CUfunction, usize, *mut usize, *mut usize) -> CUresult;

/// A log buffer up to its first NUL.
fn log_text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_string()
}

fn with_log(error: Error, log: &str) -> Error {
    match error {
        Error::Driver { call, code, text } if !log.is_empty() => {
            Error::Driver { call, code, text: format!("{text}: {log}") }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_ends_at_its_nul() {
        assert_eq!(log_text(b"ptxas error : line 3\n\0junk"), "ptxas error : line 3");
        assert_eq!(log_text(&[0; 8]), "");
        assert_eq!(log_text(b"full"), "full");
    }

    #[test]
    fn the_compilers_log_goes_into_the_error() {
        let error = failure("cuModuleLoadDataEx", CUresult::CUDA_ERROR_INVALID_PTX);
        let message = with_log(error, "ptxas error : line 3").to_string();
        assert!(message.contains("CUDA_ERROR_INVALID_PTX") && message.contains("line 3"), "{message}");
    }
}
