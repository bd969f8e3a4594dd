//! Copies between the host and memory that is known by its address alone.

use cudarc::driver::sys;

use super::status::check;
use super::stream::Stream;
use crate::error::Result;
use crate::kernels::shape::GlobalAddr;

/// Writes `bytes` to `addr` on the stream's GPU, after everything in the stream, and waits for it.
///
/// # Errors
/// [`Error::Driver`](crate::Error::Driver).
///
/// # Safety
/// `addr` is device memory of at least this many bytes.
pub unsafe fn write(stream: &Stream, addr: GlobalAddr, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let entered = stream.gpu().enter()?;
    // SAFETY: the source is alive until the copy has been waited for, and the caller vouches for the destination.
    let status = unsafe { sys::cuMemcpyHtoDAsync_v2(addr.0, bytes.as_ptr().cast(), bytes.len(), stream.raw()) };
    check("cuMemcpyHtoDAsync", status)?;
    drop(entered);
    stream.synchronize()
}

/// Reads `bytes` from `addr` on the stream's GPU, after everything in the stream, and waits for it.
///
/// # Errors
/// [`Error::Driver`](crate::Error::Driver).
///
/// # Safety
/// `addr` is device memory of at least this many bytes.
pub unsafe fn read(stream: &Stream, addr: GlobalAddr, bytes: &mut [u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let entered = stream.gpu().enter()?;
    // SAFETY: the destination is alive until the copy has been waited for, and the caller vouches for the source.
    let status = unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), addr.0, bytes.len(), stream.raw()) };
    check("cuMemcpyDtoHAsync", status)?;
    drop(entered);
    stream.synchronize()
}
