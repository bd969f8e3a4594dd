//! Borrowed device memory, whoever allocated it.

use std::marker::PhantomData;
use std::sync::Arc;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::kernels::shape::GlobalAddr;

/// Device memory that is read: a part of a [`DeviceBuffer`], or somebody else's.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a> {
    addr: GlobalAddr,
    bytes: usize,
    owner: Option<&'a Arc<Allocation>>,
    _borrow: PhantomData<&'a ()>,
}

/// Device memory that is written: a part of a [`DeviceBuffer`], or somebody else's.
#[derive(Debug)]
pub struct DeviceSliceMut<'a> {
    addr: GlobalAddr,
    bytes: usize,
    owner: Option<&'a Arc<Allocation>>,
    _borrow: PhantomData<&'a mut ()>,
}

impl DeviceSlice<'_> {
    /// Memory of another library: a tensor's data pointer, for one.
    ///
    /// # Safety
    /// `bytes` bytes from `addr` on are device memory, which stays there as long as the result is used and until the
    /// work that was given it has ended.
    pub const unsafe fn from_raw(addr: GlobalAddr, bytes: usize) -> Self {
        Self { addr, bytes, owner: None, _borrow: PhantomData }
    }

    /// Where kernels find it.
    pub const fn addr(&self) -> GlobalAddr {
        self.addr
    }

    /// Its size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// `bytes` bytes of it from `offset` on.
    ///
    /// # Errors
    /// [`Error::Argument`] when they are not all inside.
    pub fn part(self, offset: usize, bytes: usize) -> Result<Self> {
        check_part(self.bytes, offset, bytes)?;
        Ok(Self { addr: self.addr.plus(offset as u64), bytes, ..self })
    }

    /// Records the use by everything now in `stream` with the [`DeviceBuffer`] that this is of; see
    /// [`DeviceBuffer::record_use`]. Memory of other libraries is kept by them: nothing is done.
    ///
    /// # Errors
    /// As there.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        self.owner.map_or(Ok(()), |allocation| allocation.record_use(stream))
    }
}

impl DeviceSliceMut<'_> {
    /// Memory of another library: a tensor's data pointer, for one.
    ///
    /// # Safety
    /// As for [`DeviceSlice::from_raw`], and nobody else uses the memory meanwhile.
    pub const unsafe fn from_raw(addr: GlobalAddr, bytes: usize) -> Self {
        Self { addr, bytes, owner: None, _borrow: PhantomData }
    }

    /// Where kernels find it.
    pub const fn addr(&self) -> GlobalAddr {
        self.addr
    }

    /// Its size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// `bytes` bytes of it from `offset` on.
    ///
    /// # Errors
    /// [`Error::Argument`] when they are not all inside.
    pub fn part(self, offset: usize, bytes: usize) -> Result<Self> {
        check_part(self.bytes, offset, bytes)?;
        Ok(Self { addr: self.addr.plus(offset as u64), bytes, ..self })
    }

    /// Records the use by everything now in `stream` with the [`DeviceBuffer`] that this is of; see
    /// [`DeviceBuffer::record_use`]. Memory of other libraries is kept by them: nothing is done.
    ///
    /// # Errors
    /// As there.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        self.owner.map_or(Ok(()), |allocation| allocation.record_use(stream))
    }
}

impl<'a> From<&'a DeviceBuffer> for DeviceSlice<'a> {
    fn from(buffer: &'a DeviceBuffer) -> Self {
        let (addr, bytes) = (buffer.addr(), buffer.bytes());
        Self { addr, bytes, owner: Some(buffer.allocation()), _borrow: PhantomData }
    }
}

impl<'a> From<&'a mut DeviceBuffer> for DeviceSliceMut<'a> {
    fn from(buffer: &'a mut DeviceBuffer) -> Self {
        let (addr, bytes) = (buffer.addr(), buffer.bytes());
        Self { addr, bytes, owner: Some(buffer.allocation()), _borrow: PhantomData }
    }
}

/// Whether `bytes` bytes from `offset` on are inside `len` bytes.
pub(crate) fn check_part(len: usize, offset: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        _ => {
            Err(Error::argument("range", format!("{bytes} bytes from {offset}"), format!("the buffer has {len} bytes")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_inside_and_where_it_should_be() {
        // SAFETY: the memory is never touched.
        let whole = unsafe { DeviceSlice::from_raw(GlobalAddr(0x1000), 16) };
        let part = whole.part(4, 12).unwrap();
        assert_eq!((part.addr(), part.bytes()), (GlobalAddr(0x1004), 12));
        assert_eq!(whole.part(16, 0).unwrap().bytes(), 0);
    }

    #[test]
    fn a_part_outside_is_refused_with_both_sizes() {
        // SAFETY: the memory is never touched.
        let whole = || unsafe { DeviceSliceMut::from_raw(GlobalAddr(0x1000), 16) };
        let message = whole().part(8, 9).unwrap_err().to_string();
        assert_eq!(message, "range is 9 bytes from 8, but the buffer has 16 bytes");
        assert!(whole().part(usize::MAX, 2).is_err());
        assert!(whole().part(17, 0).is_err());
    }
}
