//! tilewire: matrix multiplication fused with communication on NVIDIA Hopper GPUs.

pub mod cli;
pub mod compare;
pub mod data;
pub mod driver;
pub mod error;
pub mod fault;
pub mod matrix;
pub mod measure;
pub mod model;
pub mod mutants;
pub mod ops;
pub mod plan;
pub mod ptx;
pub mod reference;
pub mod scalar;
pub mod world;

pub use error::{Error, Result};
pub use plan::{Layout, MatrixArg, Scales, SplitK, TensorScales, Variant};
/// The machine that runs the kernels where there is no GPU.
pub use tilewire_emulator as emulator;
/// The device crate: kernels, and everything host and device must agree on.
pub use tilewire_kernels as kernels;
pub use world::{RawStream, Tensor, World};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
