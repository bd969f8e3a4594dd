//! tilewire: matrix multiplication fused with communication on NVIDIA Hopper GPUs.

pub mod compare;
pub mod data;
pub mod error;
pub mod fault;
pub mod matrix;
pub mod model;
pub mod reference;
pub mod scalar;

pub use error::{Error, Result};
/// The device crate: kernels, and everything host and device must agree on.
pub use tilewire_kernels as kernels;
