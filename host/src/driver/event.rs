//! Events: marks in a stream that others can wait for.

use std::ptr;

use cudarc::driver::sys::{self, CUevent, CUresult};

use super::gpu::Gpu;
use super::status::{check, failure};
use super::stream::Stream;
use crate::error::Result;

/// A mark in a stream. A new one counts as reached.
pub struct Event {
    gpu: Gpu,
    raw: CUevent,
}

// SAFETY: the driver's handles may be used from any thread, and the driver locks.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event for ordering only, which is cheaper than one that keeps the time.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Self::with_flags(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)
    }

    /// An event that keeps the time at which it was reached.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn timed(gpu: &Gpu) -> Result<Self> {
        Self::with_flags(gpu, sys::CUevent_flags::CU_EVENT_DEFAULT as u32)
    }

    fn with_flags(gpu: &Gpu, flags: u32) -> Result<Self> {
        let _entered = gpu.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current and `raw` a live place for a handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Self { gpu: gpu.clone(), raw })
    }

    /// Marks the present end of `stream`, which must be on the same GPU. An earlier mark is forgotten.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: both handles are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw()) })
    }

    /// Whether everything before the mark is done.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), with what that work did wrong.
    pub fn is_reached(&self) -> Result<bool> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the handle is alive.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => Err(failure("cuEventQuery", status)),
        }
    }

    /// Waits until everything before the mark is done.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), with what that work did wrong.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the handle is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Seconds from `start` to this event; both are [`timed`](Self::timed) and reached. Resolution is about 0.5 µs.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), when one is not timed, not recorded, or not reached.
    pub fn seconds_since(&self, start: &Event) -> Result<f64> {
        let _entered = self.gpu.enter()?;
        let mut milliseconds = 0.0f32;
        // SAFETY: the function exists in every driver since CUDA 4 with this type; the bindings for CUDA 13 name only
        // its successor, which drivers before 12.8 lack.
        let elapsed = unsafe { super::library::symbol::<ElapsedTime>("cuEventElapsedTime") }?;
        // SAFETY: both handles are alive and `milliseconds` is a live float.
        check("cuEventElapsedTime", unsafe { elapsed(&mut milliseconds, start.raw, self.raw) })?;
        Ok(f64::from(milliseconds) * 1e-3)
    }

    /// The GPU whose streams it marks.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The driver's handle, for other libraries. Valid while this lives.
    pub fn raw(&self) -> CUevent {
        self.raw
    }
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

impl Drop for Event {
    fn drop(&mut self) {
        // An event that is still awaited is kept by the driver until it is reached.
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: made by `with_flags`, destroyed once. Failures at exit or after a fault cannot be helped.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
