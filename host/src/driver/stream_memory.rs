//! Stream memory operations: words that a stream writes or waits for, with no kernel.

use cudarc::driver::sys::{self, CUstreamWaitValue_flags, CUstreamWriteValue_flags};

use super::status::check;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::kernels::shape::GlobalAddr;

impl Stream {
    /// Writes `value` to a 32-bit word once everything before it in the stream is done and its writes are visible.
    ///
    /// # Safety
    /// `addr` is a word of device or mapped memory that stays there until then, and nobody conflicts over it.
    ///
    /// # Errors
    /// [`Error::Argument`] for an address that is not a multiple of 4; [`Error::Driver`].
    pub unsafe fn write_value(&self, addr: GlobalAddr, value: u32) -> Result<()> {
        check_word(addr)?;
        let _entered = self.gpu().enter()?;
        // The default orders earlier writes of the stream before this one.
        let flags = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        // SAFETY: the stream is alive; the caller vouches for the address.
        check("cuStreamWriteValue32", unsafe { sys::cuStreamWriteValue32_v2(self.raw(), addr.0, value, flags) })
    }

    /// Lets what comes next in the stream wait until a 32-bit word is `value` or later, compared as epochs are: by the
    /// sign of the wrapping difference.
    ///
    /// The wait has no deadline. While it lasts it takes no SM.
    ///
    /// # Safety
    /// `addr` is a word of device or mapped memory that stays there until then.
    ///
    /// # Errors
    /// [`Error::Argument`] for an address that is not a multiple of 4; [`Error::Driver`].
    pub unsafe fn wait_value(&self, addr: GlobalAddr, value: u32) -> Result<()> {
        check_word(addr)?;
        let _entered = self.gpu().enter()?;
        let flags = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the stream is alive; the caller vouches for the address.
        check("cuStreamWaitValue32", unsafe { sys::cuStreamWaitValue32_v2(self.raw(), addr.0, value, flags) })
    }
}

fn check_word(addr: GlobalAddr) -> Result<()> {
    if addr.0 == 0 || !addr.0.is_multiple_of(4) {
        let rule = "a stream memory operation needs a word at a multiple of 4 bytes";
        return Err(Error::argument("address", format!("{:#x}", addr.0), rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_aligned_and_not_null() {
        check_word(GlobalAddr(0x1004)).unwrap();
        assert!(check_word(GlobalAddr(0)).is_err());
        let message = check_word(GlobalAddr(0x1002)).unwrap_err().to_string();
        assert!(message.starts_with("address is 0x1002, but"), "{message}");
    }
}
