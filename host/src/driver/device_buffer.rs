//! Device memory.

use std::mem::size_of_val;
use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use cudarc::driver::sys;

use super::allocation::{Allocation, enqueue};
use super::gpu::Gpu;
use super::host_memory::PinnedBuffer;
use super::status::check;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::kernels::shape::GlobalAddr;

/// Bytes of device memory, 256-byte aligned, not initialised unless the constructor says so.
///
/// Freed after the uses that were recorded: the copies below record theirs; a launch does not know its buffers, so call
/// [`record_use`](Self::record_use) after it. Synchronous copies wait for the recorded uses first, and return when the
/// bytes have arrived. Asynchronous ones are ordered by their stream alone.
#[derive(Debug)]
pub struct DeviceBuffer(Arc<Allocation>);

impl DeviceBuffer {
    /// Memory with anything in it. Zero bytes are allowed; the address is then 0.
    ///
    /// # Errors
    /// [`Error::Driver`], for one when memory runs out.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        Ok(Self(Allocation::device(gpu, bytes)?))
    }

    /// Memory with every byte set to `value`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn filled(gpu: &Gpu, bytes: usize, value: u8) -> Result<Self> {
        let mut buffer = Self::new(gpu, bytes)?;
        buffer.fill(value)?;
        Ok(buffer)
    }

    /// Memory with a copy of `values`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn from_slice<T: NoUninit>(gpu: &Gpu, values: &[T]) -> Result<Self> {
        let mut buffer = Self::new(gpu, size_of_val(values))?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.0
    }

    /// The GPU it is on.
    pub fn gpu(&self) -> &Gpu {
        self.0.gpu()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Where kernels find it. Valid while this lives, and while a graph that was captured with it does.
    pub fn addr(&self) -> GlobalAddr {
        GlobalAddr(self.0.addr())
    }

    /// Where kernels find byte `offset` of it.
    ///
    /// # Errors
    /// [`Error::Argument`] when it has fewer bytes.
    pub fn addr_at(&self, offset: usize) -> Result<GlobalAddr> {
        self.0.range(offset, 0)?;
        Ok(self.addr().plus(offset as u64))
    }

    /// Everything now in `stream` may use the buffer: it is not freed before that is done.
    ///
    /// In a capture begun by [`Stream::begin_capture`], the graph keeps the buffer's memory instead. Allocates only the
    /// first time that it sees a stream.
    ///
    /// # Errors
    /// [`Error::Argument`] when somebody else captures the stream: keep the buffer as long as that graph then.
    /// [`Error::Driver`].
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        self.0.record_use(stream)
    }

    /// Waits until all recorded uses are done.
    ///
    /// # Errors
    /// [`Error::Driver`], with what one of them did wrong.
    pub fn wait_for_uses(&self) -> Result<()> {
        self.0.uses().wait()
    }

    /// Copies `values` to byte `offset` and on.
    ///
    /// # Errors
    /// [`Error::Argument`] when they do not fit; [`Error::Driver`].
    pub fn write<T: NoUninit>(&mut self, offset: usize, values: &[T]) -> Result<()> {
        let range = self.0.range(offset, size_of_val(values))?;
        self.wait_for_uses()?;
        if range.is_empty() {
            return Ok(());
        }
        let (dst, src) = (self.0.addr() + range.start as u64, values.as_ptr().cast());
        self.gpu().copy_now("cuMemcpyHtoD", |stream| {
            // SAFETY: the range is inside the buffer and `values` outlives the copy, which `copy_now` waits for.
            unsafe { sys::cuMemcpyHtoDAsync_v2(dst, src, range.len(), stream) }
        })
    }

    /// Copies byte `offset` and on to `values`.
    ///
    /// # Errors
    /// [`Error::Argument`] when the buffer has fewer bytes; [`Error::Driver`].
    pub fn read<T: AnyBitPattern>(&self, offset: usize, values: &mut [T]) -> Result<()> {
        let range = self.0.range(offset, size_of_val(values))?;
        self.wait_for_uses()?;
        if range.is_empty() {
            return Ok(());
        }
        let (dst, src) = (values.as_mut_ptr().cast(), self.0.addr() + range.start as u64);
        self.gpu().copy_now("cuMemcpyDtoH", |stream| {
            // SAFETY: the range is inside the buffer, every bit pattern is a `T`, and `values` outlives the copy.
            unsafe { sys::cuMemcpyDtoHAsync_v2(dst, src, range.len(), stream) }
        })
    }

    /// The whole buffer as values.
    ///
    /// # Errors
    /// [`Error::Argument`] when its size is not a whole number of values; [`Error::Driver`].
    pub fn to_vec<T: AnyBitPattern>(&self) -> Result<Vec<T>> {
        let size = size_of::<T>();
        if size == 0 || !self.bytes().is_multiple_of(size) {
            let rule = format!("it must be a multiple of {size}, the size of a value");
            return Err(Error::argument("buffer size", format!("{} bytes", self.bytes()), rule));
        }
        let mut values = vec![<T as Zeroable>::zeroed(); self.bytes() / size];
        self.read(0, &mut values)?;
        Ok(values)
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn fill(&mut self, value: u8) -> Result<()> {
        self.wait_for_uses()?;
        let (addr, bytes) = (self.0.addr(), self.bytes());
        if bytes == 0 {
            return Ok(());
        }
        self.gpu().copy_now("cuMemsetD8", |stream| {
            // SAFETY: the whole buffer, and nothing else, is set.
            unsafe { sys::cuMemsetD8Async(addr, value, bytes, stream) }
        })
    }

    /// Sets `bytes` bytes from byte `offset` on, in `stream`.
    ///
    /// # Errors
    /// [`Error::Argument`] when the range is not inside; [`Error::Driver`].
    pub fn fill_async(&mut self, offset: usize, bytes: usize, value: u8, stream: &Stream) -> Result<()> {
        let range = self.0.range(offset, bytes)?;
        if range.is_empty() {
            return Ok(());
        }
        let _entered = stream.gpu().enter()?;
        let addr = self.0.addr() + range.start as u64;
        enqueue([&self.0], stream, || {
            // SAFETY: the range is inside the buffer, which outlives the work because its use is recorded.
            let status = unsafe { sys::cuMemsetD8Async(addr, value, range.len(), stream.raw()) };
            check("cuMemsetD8Async", status)
        })
    }

    /// Sets `words` 32-bit words from byte `offset` on, in `stream`.
    ///
    /// # Errors
    /// [`Error::Argument`] when the range is not inside or `offset` not a multiple of 4; [`Error::Driver`].
    pub fn fill_u32_async(&mut self, offset: usize, words: usize, value: u32, stream: &Stream) -> Result<()> {
        if !offset.is_multiple_of(4) {
            return Err(Error::argument("offset", format!("{offset} bytes"), "words start at a multiple of 4 bytes"));
        }
        let range = self.0.range(offset, words.saturating_mul(4))?;
        if range.is_empty() {
            return Ok(());
        }
        let _entered = stream.gpu().enter()?;
        let addr = self.0.addr() + range.start as u64;
        enqueue([&self.0], stream, || {
            // SAFETY: the range is inside the buffer and aligned, and its use is recorded.
            let status = unsafe { sys::cuMemsetD32Async(addr, value, words, stream.raw()) };
            check("cuMemsetD32Async", status)
        })
    }

    /// Copies `bytes` bytes of `src` to this buffer, in `stream`. Waits for neither.
    ///
    /// # Errors
    /// [`Error::Argument`] when a range is not inside its buffer; [`Error::Driver`].
    pub fn write_async(
        &mut self,
        offset: usize,
        src: &PinnedBuffer,
        src_offset: usize,
        bytes: usize,
        stream: &Stream,
    ) -> Result<()> {
        let (to, from) = (self.0.range(offset, bytes)?, src.allocation().range(src_offset, bytes)?);
        copy(src.allocation(), from.start, &self.0, to.start, bytes, stream)
    }

    /// Copies `bytes` bytes of this buffer to `dst`, in `stream`. Waits for neither.
    ///
    /// # Errors
    /// [`Error::Argument`] when a range is not inside its buffer; [`Error::Driver`].
    pub fn read_async(
        &self,
        offset: usize,
        dst: &mut PinnedBuffer,
        dst_offset: usize,
        bytes: usize,
        stream: &Stream,
    ) -> Result<()> {
        let (from, to) = (self.0.range(offset, bytes)?, dst.allocation().range(dst_offset, bytes)?);
        copy(&self.0, from.start, dst.allocation(), to.start, bytes, stream)
    }

    /// Copies `bytes` bytes of `src`, which may be on another GPU, to this buffer, in `stream`: copy engines, no SM.
    ///
    /// # Errors
    /// [`Error::Argument`] when a range is not inside its buffer; [`Error::Driver`].
    pub fn copy_from_async(
        &mut self,
        offset: usize,
        src: &DeviceBuffer,
        src_offset: usize,
        bytes: usize,
        stream: &Stream,
    ) -> Result<()> {
        let (to, from) = (self.0.range(offset, bytes)?, src.0.range(src_offset, bytes)?);
        copy(&src.0, from.start, &self.0, to.start, bytes, stream)
    }
}

/// Both offsets have been checked against their allocations.
fn copy(
    src: &Arc<Allocation>,
    from: usize,
    dst: &Arc<Allocation>,
    to: usize,
    bytes: usize,
    stream: &Stream,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let _entered = stream.gpu().enter()?;
    let (to, from) = (dst.addr() + to as u64, src.addr() + from as u64);
    enqueue([src, dst], stream, || {
        // SAFETY: both ranges are inside their allocations, which outlive the copy because their uses are recorded.
        // Unified addressing, which `Gpu::open` requires, lets the driver tell the kinds of memory by address.
        check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to, from, bytes, stream.raw()) })
    })
}
