//! Buffers and streams of the `cust` crate, taken as they are.
//!
//! `cust` links libcuda when it is built: set `CUDA_LIBRARY_PATH` to a folder whose `lib64` (or `lib64/stubs`) holds
//! `libcuda.so`. Its `Context` is the primary context, so pointers and streams fit; the legacy contexts of
//! `cust::context::legacy` do not, and their streams are refused. Dropping a `cust` buffer waits for the GPU
//! (cuMemFree does), so one that is dropped early is safe as well.

use cust::memory::{DeviceBuffer as CustBuffer, DeviceCopy, DeviceSlice as CustSlice};
use cust::stream::Stream as CustStream;

use super::device_slice::{DeviceSlice, DeviceSliceMut};
use super::gpu::Gpu;
use super::stream::BorrowedStream;
use crate::error::Result;
use crate::kernels::shape::GlobalAddr;

fn parts<T: DeviceCopy>(slice: &CustSlice<T>) -> (GlobalAddr, usize) {
    (GlobalAddr(slice.as_device_ptr().as_raw()), slice.len() * size_of::<T>())
}

impl<'a, T: DeviceCopy> From<&'a CustBuffer<T>> for DeviceSlice<'a> {
    fn from(buffer: &'a CustBuffer<T>) -> Self {
        let (addr, bytes) = parts(buffer);
        // SAFETY: `cust` allocated the memory, and the borrow keeps it.
        unsafe { Self::from_raw(addr, bytes) }
    }
}

impl<'a, T: DeviceCopy> From<&'a mut CustBuffer<T>> for DeviceSliceMut<'a> {
    fn from(buffer: &'a mut CustBuffer<T>) -> Self {
        let (addr, bytes) = parts(buffer);
        // SAFETY: `cust` allocated the memory, and the exclusive borrow keeps it.
        unsafe { Self::from_raw(addr, bytes) }
    }
}

/// A `cust` stream, to launch in and wait for.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) when it is not in the GPU's primary context;
/// [`Error::Driver`](crate::Error::Driver).
pub fn borrow_stream<'a>(gpu: &Gpu, stream: &'a CustStream) -> Result<BorrowedStream<'a>> {
    // SAFETY: the borrow keeps the stream alive.
    unsafe { BorrowedStream::from_raw(gpu, stream.as_inner().cast()) }
}
