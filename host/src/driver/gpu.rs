//! A GPU and its primary context.

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult, CUstream, CUstreamCaptureMode};

use super::capability::{self, DeviceFacts, Uuid};
use super::status::{check, failure};
use crate::error::Result;

/// A GPU whose primary context is held. Clones share it; the last one gives it back.
#[derive(Clone)]
pub struct Gpu(Arc<Inner>);

struct Inner {
    facts: DeviceFacts,
    device: CUdevice,
    context: CUcontext,
    /// For synchronous copies. They stay off the legacy stream, which would wait for other libraries' streams and
    /// break their captures.
    copies: CUstream,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing here changes after construction.
unsafe impl Sync for Inner {}

impl Gpu {
    /// Holds the primary context of the GPU with this ordinal, and checks that the kernels can run there.
    ///
    /// # Errors
    /// [`Error::NoGpu`](crate::Error::NoGpu) when there is no driver, or no Hopper GPU;
    /// [`Error::Driver`](crate::Error::Driver), for one when an earlier error is pending in the context.
    pub fn open(ordinal: usize) -> Result<Self> {
        let facts = DeviceFacts::query(ordinal)?;
        capability::check(&facts)?;
        let mut device = 0;
        // SAFETY: the query has opened the library and found the ordinal.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
        let mut context = ptr::null_mut();
        // SAFETY: `device` is valid; `Inner`'s drop releases what is retained here.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        let mut inner = Inner { facts, device, context, copies: ptr::null_mut() };
        let entered = Entered::new(&inner)?;
        let mut copies = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; `Inner`'s drop destroys the stream.
        let made = check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut copies, flags) });
        drop(entered);
        made?;
        inner.copies = copies;
        let gpu = Self(Arc::new(inner));
        gpu.check_pending()?;
        Ok(gpu)
    }

    /// GPUs that this process sees; [`open`](Self::open) takes ordinals below it.
    ///
    /// # Errors
    /// [`Error::NoGpu`](crate::Error::NoGpu) when there is no driver.
    pub fn count() -> Result<usize> {
        capability::device_count()
    }

    /// What the driver says about this GPU.
    pub fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    /// Ordinal in this process.
    pub fn ordinal(&self) -> usize {
        self.0.facts.ordinal
    }

    /// Identity that holds across processes.
    pub fn uuid(&self) -> Uuid {
        self.0.facts.uuid
    }

    /// Streaming multiprocessors.
    pub fn sm_count(&self) -> u32 {
        self.0.facts.sm_count
    }

    /// The primary context, for other libraries. Valid while a clone of this lives.
    pub fn context(&self) -> CUcontext {
        self.0.context
    }

    /// The driver's device handle, for other libraries.
    pub fn device(&self) -> CUdevice {
        self.0.device
    }

    /// Makes the context current on this thread until the guard is dropped, which restores the one before.
    ///
    /// Meanwhile the thread's capture mode is relaxed: allocating or looking at events then does not spoil a graph that
    /// another thread, or another library on this thread, is capturing.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn enter(&self) -> Result<Entered<'_>> {
        Entered::new(&self.0)
    }

    /// Runs `f` with the context current; see [`enter`](Self::enter).
    ///
    /// # Errors
    /// Those of `f`, and of making the context current.
    pub fn with_current<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let _entered = self.enter()?;
        f()
    }

    /// Reports an error that earlier work left in the context. Waits for nothing: an error of work still running is
    /// reported by the call that waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) saying "an earlier CUDA error is pending".
    pub fn check_pending(&self) -> Result<()> {
        let _entered = self.enter()?;
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // A new event is complete, so looking at it fails only for what is pending; no stream is touched.
        // SAFETY: the context is current and `event` a live place for a handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        // SAFETY: the event was just made.
        let seen = unsafe { sys::cuEventQuery(event) };
        // SAFETY: the event is destroyed once and not used again.
        let destroyed = unsafe { sys::cuEventDestroy_v2(event) };
        check("cuEventQuery", seen)?;
        check("cuEventDestroy", destroyed)
    }

    /// Waits for everything that was started in this context, by anybody.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), with what the awaited work did wrong.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Free and total device memory, in bytes.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current; both pointers are to live integers.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Runs `enqueue` on the stream for synchronous copies and waits for it.
    pub(crate) fn copy_now(&self, call: &'static str, enqueue: impl FnOnce(CUstream) -> CUresult) -> Result<()> {
        let _entered = self.enter()?;
        check(call, enqueue(self.0.copies))?;
        // SAFETY: the stream lives as long as `self`.
        check(call, unsafe { sys::cuStreamSynchronize(self.0.copies) })
    }
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        self.0.context == other.0.context
    }
}

impl Eq for Gpu {}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({}, {}, {})", self.ordinal(), self.0.facts.name, self.uuid())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // At process exit the driver may be gone already (CUDA_ERROR_DEINITIALIZED), and after a fault the context is
        // useless: there is nothing to do about a failure here.
        if let Ok(entered) = Entered::new(self) {
            if !self.copies.is_null() {
                // SAFETY: made by `open`, destroyed once; every copy on it has been waited for.
                let _ = unsafe { sys::cuStreamDestroy_v2(self.copies) };
            }
            drop(entered);
        }
        // SAFETY: retained once by `open`.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// While this lives, a GPU's context is current on this thread; see [`Gpu::enter`].
#[must_use = "the context is current only while the guard lives"]
pub struct Entered<'a> {
    pushed: bool,
    capture_mode: CUstreamCaptureMode,
    /// Belongs to the thread that made it.
    _inner: PhantomData<(&'a Inner, *const ())>,
}

impl<'a> Entered<'a> {
    fn new(inner: &'a Inner) -> Result<Self> {
        let mut current = ptr::null_mut();
        // SAFETY: the library is open, as `inner` shows; `current` is a live place for a handle.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        let pushed = current != inner.context;
        if pushed {
            // SAFETY: the context is retained.
            check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(inner.context) })?;
        }
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is live; the driver swaps it with the thread's mode.
        let status = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        if status != CUresult::CUDA_SUCCESS {
            if pushed {
                pop();
            }
            return Err(failure("cuThreadExchangeStreamCaptureMode", status));
        }
        Ok(Self { pushed, capture_mode: mode, _inner: PhantomData })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Both undo what `new` did on this thread; if the driver refuses, nothing was there to undo.
        // SAFETY: the mode is the one that the driver gave.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.capture_mode) };
        if self.pushed {
            pop();
        }
    }
}

fn pop() {
    let mut popped = ptr::null_mut();
    // SAFETY: `popped` is a live place for a handle. An empty stack is an error code, not undefined behaviour.
    let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
}
