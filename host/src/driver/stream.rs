//! Streams: queues of work on a GPU.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

use cudarc::driver::sys::{self, CUresult, CUstream, CUstreamCaptureStatus};

use super::event::Event;
use super::gpu::Gpu;
use super::library;
use super::status::{check, failure};
use crate::error::{Error, Result};

/// A queue of work on a GPU.
pub struct Stream {
    gpu: Gpu,
    raw: CUstream,
    id: u64,
    owned: bool,
}

// SAFETY: the driver's handles may be used from any thread, and the driver locks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream that does not wait for the legacy default stream.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Self::create(gpu, 0)
    }

    /// A new stream of the highest priority: its CTAs are placed before those of other streams.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn high_priority(gpu: &Gpu) -> Result<Self> {
        let (mut least, mut greatest) = (0, 0);
        let entered = gpu.enter()?;
        // SAFETY: the context is current; both pointers are to live integers.
        let status = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
        drop(entered);
        check("cuCtxGetStreamPriorityRange", status)?;
        Self::create(gpu, greatest)
    }

    fn create(gpu: &Gpu, priority: i32) -> Result<Self> {
        let _entered = gpu.enter()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current and `raw` a live place for a handle.
        check("cuStreamCreateWithPriority", unsafe { sys::cuStreamCreateWithPriority(&mut raw, flags, priority) })?;
        let mut stream = Self { gpu: gpu.clone(), raw, id: 0, owned: true };
        stream.id = stream.query_id()?;
        Ok(stream)
    }

    /// A stream that belongs to somebody else, who destroys it. Null is the legacy default stream.
    ///
    /// # Safety
    /// `raw` is a stream (a `cudaStream_t` will do) that stays alive as long as the result is used.
    ///
    /// # Errors
    /// [`Error::Argument`] when it is not in the GPU's primary context; [`Error::Driver`].
    pub unsafe fn from_raw(gpu: &Gpu, raw: CUstream) -> Result<Self> {
        let _entered = gpu.enter()?;
        let mut context = ptr::null_mut();
        // SAFETY: the caller vouches for `raw`; `context` is a live place for a handle.
        check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(raw, &mut context) })?;
        if context != gpu.context() {
            return Err(Error::argument(
                "stream",
                format!("in context {context:?}"),
                format!("it must be in the primary context of GPU {}, {:?}", gpu.ordinal(), gpu.context()),
            ));
        }
        let mut stream = Self { gpu: gpu.clone(), raw, id: 0, owned: false };
        stream.id = stream.query_id()?;
        Ok(stream)
    }

    fn query_id(&self) -> Result<u64> {
        let mut id = 0;
        // SAFETY: the handle is alive, its context is current, and `id` is a live integer.
        check("cuStreamGetId", unsafe { sys::cuStreamGetId(self.raw, &mut id) })?;
        Ok(id)
    }

    /// The GPU it runs on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The driver's handle, for other libraries. Valid while this lives.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// A number that no other stream of this process ever has, unlike the handle.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits for all work in the stream.
    ///
    /// # Errors
    /// [`Error::Driver`], with what that work did wrong.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the handle is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Whether all work in the stream is done.
    ///
    /// # Errors
    /// [`Error::Driver`], with what that work did wrong.
    pub fn is_idle(&self) -> Result<bool> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the handle is alive.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => Err(failure("cuStreamQuery", status)),
        }
    }

    /// Lets what comes next in the stream wait for `event`, which may be of another GPU.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: both handles are alive; 0 is the default.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw(), 0) })
    }

    /// The number of the capture that the stream is part of, if any.
    ///
    /// # Errors
    /// [`Error::Driver`], also when the capture was spoiled.
    pub fn capture_id(&self) -> Result<Option<u64>> {
        let _entered = self.gpu.enter()?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the handle is alive and `status` a live place.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) })?;
        match status {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => return Ok(None),
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => {}
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                return Err(failure("cuStreamIsCapturing", CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
            }
        }
        let mut id = 0;
        let none = ptr::null_mut();
        // SAFETY: this form of the function is in every driver since CUDA 11.3; the bindings for CUDA 13 name only its
        // successor, which drivers before 12.3 lack.
        let info = unsafe { library::symbol::<CaptureInfo>("cuStreamGetCaptureInfo_v2") }?;
        // SAFETY: the handle is alive, `status` and `id` are live places, and null asks for nothing more.
        let code = unsafe { info(self.raw, &mut status, &mut id, none, none, none) };
        check("cuStreamGetCaptureInfo", code)?;
        Ok(Some(id))
    }
}

/// A stream of another library's stream object, which it borrows.
pub struct BorrowedStream<'a> {
    stream: Stream,
    _owner: PhantomData<&'a ()>,
}

impl BorrowedStream<'_> {
    /// A stream that lives as long as the owner from which the lifetime comes.
    ///
    /// # Safety
    /// `raw` is a stream that stays alive for the result's lifetime.
    ///
    /// # Errors
    /// As for [`Stream::from_raw`].
    pub unsafe fn from_raw(gpu: &Gpu, raw: CUstream) -> Result<Self> {
        // SAFETY: the caller vouches for it.
        let stream = unsafe { Stream::from_raw(gpu, raw) }?;
        Ok(Self { stream, _owner: PhantomData })
    }
}

impl Deref for BorrowedStream<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

type Unused = *mut std::ffi::c_void;
type CaptureInfo =
    unsafe extern "C" fn(CUstream, *mut CUstreamCaptureStatus, *mut u64, Unused, Unused, Unused) -> CUresult;

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, GPU {})", self.id, self.gpu.ordinal())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // Work still queued is carried out; the driver frees the stream after it.
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: made by `create`, destroyed once. Failures at exit or after a fault cannot be helped.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}
