//! Memory that the driver gave out, freed after its last recorded use.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr};

use super::device_slice::check_part;
use super::gpu::Gpu;
use super::graph;
use super::status::check;
use super::stream::Stream;
use super::uses::Uses;
use crate::error::Result;

/// One allocation. Shared by the buffer that owns it and the graphs that were captured with it.
pub(crate) struct Allocation {
    gpu: Gpu,
    place: Place,
    bytes: usize,
    uses: Uses,
}

enum Place {
    /// Zero bytes: the driver refuses to allocate those.
    Nowhere,
    Device(CUdeviceptr),
    Host(*mut c_void, CUdeviceptr),
}

// SAFETY: the pointers are only handed out; what is done with them is up to the owner's `&` and `&mut`.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(crate) fn device(gpu: &Gpu, bytes: usize) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let mut addr = 0;
        if bytes > 0 {
            // SAFETY: the context is current and `addr` a live place for an address.
            check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut addr, bytes) })?;
        }
        let place = if bytes > 0 { Place::Device(addr) } else { Place::Nowhere };
        Ok(Arc::new(Self { gpu: gpu.clone(), place, bytes, uses: Uses::default() }))
    }

    /// Page-locked host memory, mapped for every GPU of the process.
    pub(crate) fn host(gpu: &Gpu, bytes: usize) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let mut allocation = Self { gpu: gpu.clone(), place: Place::Nowhere, bytes, uses: Uses::default() };
        if bytes > 0 {
            let mut host = ptr::null_mut();
            let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
            // SAFETY: the context is current and `host` a live place for a pointer.
            check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut host, bytes, flags) })?;
            allocation.place = Place::Host(host, 0);
            let mut addr = 0;
            // SAFETY: `host` is mapped memory of this context; 0 is the only flag.
            let status = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut addr, host, 0) };
            check("cuMemHostGetDevicePointer", status)?;
            allocation.place = Place::Host(host, addr);
        }
        Ok(Arc::new(allocation))
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the GPU finds it; 0 when it is empty.
    pub(crate) fn addr(&self) -> CUdeviceptr {
        match self.place {
            Place::Nowhere => 0,
            Place::Device(addr) | Place::Host(_, addr) => addr,
        }
    }

    /// Where the host finds it; null when it is empty or on the device.
    pub(crate) fn host_ptr(&self) -> *mut c_void {
        match self.place {
            Place::Host(host, _) => host,
            _ => ptr::null_mut(),
        }
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.uses
    }

    /// `bytes` bytes from `offset` on, if they are inside.
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> Result<Range<usize>> {
        check_part(self.bytes, offset, bytes)?;
        Ok(offset..offset + bytes)
    }

    /// Everything now in `stream` may use the allocation: it is not freed before that is done. In a capture, the graph
    /// keeps the allocation instead.
    pub(crate) fn record_use(self: &Arc<Self>, stream: &Stream) -> Result<()> {
        enqueue([self], stream, || Ok(()))
    }
}

/// Runs `work`, which puts something in `stream` that uses `allocations`, and records those uses.
///
/// Nothing is enqueued that could outlive the memory: a capture whose graph cannot keep it is refused before, and when
/// a use cannot be recorded the work is waited for.
pub(crate) fn enqueue<const N: usize>(
    allocations: [&Arc<Allocation>; N],
    stream: &Stream,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if let Some(id) = stream.capture_id()? {
        allocations.into_iter().try_for_each(|allocation| graph::keep(id, allocation.clone()))?;
        return work();
    }
    work()?;
    let recorded = allocations.into_iter().try_for_each(|allocation| allocation.uses.record(stream));
    if recorded.is_err() {
        let _ = stream.synchronize();
    }
    recorded
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} of GPU {}", self.bytes, self.addr(), self.gpu.ordinal())
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // After a fault the uses report an error instead of waiting; the memory then goes with the context.
        let _ = self.uses.wait();
        let Ok(_entered) = self.gpu.enter() else { return };
        // Failures at exit (CUDA_ERROR_DEINITIALIZED) or after a fault cannot be helped.
        match self.place {
            Place::Nowhere => {}
            Place::Device(addr) => {
                // SAFETY: allocated by `device`, freed once, after its recorded uses.
                let _ = unsafe { sys::cuMemFree_v2(addr) };
            }
            Place::Host(host, _) => {
                // SAFETY: allocated by `host`, freed once, after its recorded uses.
                let _ = unsafe { sys::cuMemFreeHost(host) };
            }
        }
    }
}
