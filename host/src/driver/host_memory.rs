//! Page-locked host memory: staging buffers, and words that kernels write while the host looks.

use std::marker::PhantomData;
use std::mem::size_of;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::allocation::Allocation;
use super::gpu::Gpu;
use super::stream::Stream;
use crate::error::Result;
use crate::kernels::abi::FaultRecord;
use crate::kernels::shape::GlobalAddr;

/// Page-locked bytes for asynchronous copies, freed after its recorded uses.
#[derive(Debug)]
pub struct PinnedBuffer(Arc<Allocation>);

impl PinnedBuffer {
    /// Zeroed memory of this many bytes.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let buffer = Self(Allocation::host(gpu, bytes)?);
        if bytes > 0 {
            // SAFETY: a fresh allocation of `bytes` bytes.
            unsafe { buffer.0.host_ptr().cast::<u8>().write_bytes(0, bytes) };
        }
        Ok(buffer)
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.0
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Where kernels find it. Valid while this lives.
    pub fn addr(&self) -> GlobalAddr {
        GlobalAddr(self.0.addr())
    }

    /// The bytes, once all recorded uses are done.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), with what a use did wrong.
    pub fn as_slice(&self) -> Result<&[u8]> {
        self.0.uses().wait()?;
        if self.bytes() == 0 {
            return Ok(&[]);
        }
        // SAFETY: initialised by `new`; safe copies into it need `&mut self`, which this borrow excludes, and those
        // started earlier have been waited for.
        Ok(unsafe { slice::from_raw_parts(self.0.host_ptr().cast(), self.bytes()) })
    }

    /// The bytes, to be written, once all recorded uses are done.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), with what a use did wrong.
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8]> {
        self.0.uses().wait()?;
        if self.bytes() == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `as_slice`; copies from it need at least `&self`, which this borrow excludes.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.host_ptr().cast(), self.bytes()) })
    }

    /// Everything now in `stream` may use the buffer; see
    /// [`DeviceBuffer::record_use`](super::DeviceBuffer::record_use).
    ///
    /// # Errors
    /// As there.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        self.0.record_use(stream)
    }
}

/// Types that a GPU may write while the host reads them.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, the size is a multiple of 4 and not 0, the alignment at most 64,
/// and the first four bytes are a whole field of their own.
pub unsafe trait HostVisible: Copy {}

// SAFETY: a plain word.
unsafe impl HostVisible for u32 {}
// SAFETY: plain words; the first half of a u64 may be looked at alone.
unsafe impl HostVisible for u64 {}
// SAFETY: `repr(C)`: eight u32, the first of them `state`, one u64 and two u32, so no padding.
unsafe impl HostVisible for FaultRecord {}

/// One value in mapped host memory, written by kernels and polled by the host.
///
/// Reads and writes are volatile, so the host may look while a kernel writes; whether what it sees is complete is a
/// matter of the kernel's protocol. For a [`FaultRecord`] that is `state`, its first word, which the kernel writes last
/// and [`read`](Self::read) reads first.
#[derive(Debug)]
pub struct MappedHost<T: HostVisible> {
    allocation: Arc<Allocation>,
    _value: PhantomData<T>,
}

// SAFETY: `T` is plain data, and it is copied in and out by volatile access only.
unsafe impl<T: HostVisible> Send for MappedHost<T> {}
// SAFETY: as above.
unsafe impl<T: HostVisible> Sync for MappedHost<T> {}

impl<T: HostVisible> MappedHost<T> {
    /// Mapped memory that holds `value`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn new(gpu: &Gpu, value: T) -> Result<Self> {
        const { assert!(size_of::<T>() != 0 && size_of::<T>().is_multiple_of(4) && align_of::<T>() <= 64) };
        let mapped = Self { allocation: Allocation::host(gpu, size_of::<T>())?, _value: PhantomData };
        mapped.write(value);
        Ok(mapped)
    }

    fn ptr(&self) -> *mut T {
        self.allocation.host_ptr().cast()
    }

    /// Where kernels find it. Valid while this lives.
    pub fn addr(&self) -> GlobalAddr {
        GlobalAddr(self.allocation.addr())
    }

    /// The value now: its first word is loaded first, with acquire order, and then the whole.
    pub fn read(&self) -> T {
        self.first_word();
        // SAFETY: mapped host memory is page-aligned and initialised by `new`, and every bit pattern is a `T`.
        unsafe { self.ptr().read_volatile() }
    }

    /// The first four bytes now, loaded with acquire order.
    pub fn first_word(&self) -> u32 {
        // SAFETY: at least four aligned bytes; the host touches them by volatile or atomic access only.
        let word = unsafe { AtomicU32::from_ptr(self.ptr().cast()) };
        word.load(Ordering::Acquire)
    }

    /// Sets the value. Kernels launched later see it.
    pub fn write(&self, value: T) {
        // SAFETY: as in `read`.
        unsafe { self.ptr().write_volatile(value) };
        fence(Ordering::Release);
    }

    /// Everything now in `stream` may use the value; see
    /// [`DeviceBuffer::record_use`](super::DeviceBuffer::record_use).
    ///
    /// # Errors
    /// As there.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        self.allocation.record_use(stream)
    }
}
