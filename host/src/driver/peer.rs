//! Access to other GPUs' memory within one process.

use cudarc::driver::sys::{self, CUdevice_P2PAttribute, CUresult};

use super::gpu::Gpu;
use super::status::{check, failure};
use crate::error::Result;

/// What a GPU can do with another one's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFacts {
    /// Whether it can read and write it.
    pub access: bool,
    /// Whether atomics work across the link.
    pub atomics: bool,
    /// The driver's rank of the link; 0 is the fastest kind in the machine.
    pub performance_rank: u32,
}

impl Gpu {
    /// Whether this GPU can be given access to `peer`'s memory.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn can_access_peer(&self, peer: &Gpu) -> Result<bool> {
        if self == peer {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: both devices are valid and `can` is a live integer.
        let status = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device(), peer.device()) };
        check("cuDeviceCanAccessPeer", status)?;
        Ok(can != 0)
    }

    /// Lets this GPU's kernels and copies use `peer`'s memory, for as long as both contexts live. Doing so twice, or
    /// with itself, is fine.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), for one when there is no path between the two.
    pub fn enable_peer_access(&self, peer: &Gpu) -> Result<()> {
        if self == peer {
            return Ok(());
        }
        let _entered = self.enter()?;
        // SAFETY: this context is current and the peer's is retained; 0 is the only flag.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.context(), 0) } {
            CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            status => Err(failure("cuCtxEnablePeerAccess", status)),
        }
    }

    /// What this GPU can do with `peer`'s memory. Needs two different GPUs.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn peer_facts(&self, peer: &Gpu) -> Result<PeerFacts> {
        use CUdevice_P2PAttribute as A;
        let attribute = |which| -> Result<u32> {
            let mut value = 0;
            // SAFETY: both devices are valid and `value` is a live integer.
            let status = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, which, self.device(), peer.device()) };
            check("cuDeviceGetP2PAttribute", status)?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        Ok(PeerFacts {
            access: attribute(A::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? != 0,
            atomics: attribute(A::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0,
            performance_rank: attribute(A::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?,
        })
    }
}
