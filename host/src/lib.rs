//! tilewire: matrix multiplication fused with communication on NVIDIA Hopper GPUs.

pub mod emulator;
pub mod error;
pub mod fault;

pub use error::{Error, Result};
/// The device crate: kernels, and everything host and device must agree on.
pub use tilewire_kernels as kernels;
