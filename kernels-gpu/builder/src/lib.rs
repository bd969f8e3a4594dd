//! Builds tilewire's device crate to PTX and enforces the PTX contract.
//!
//! Does the part of Rust-CUDA's `cuda_builder`, for kernels that rustc's own nvptx64 target compiles:
//!
//! ```no_run
//! # use tilewire_builder::{Arch, CudaBuilder};
//! # fn main() -> tilewire_builder::Result<()> {
//! let ptx = CudaBuilder::new("kernels-gpu")
//!     .entries(tilewire_kernels::entries::ENTRIES)
//!     .arch(Arch::Sm90a)
//!     .copy_to("kernels.ptx")
//!     .build()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`toolchain`] | finding a compiler that can |
//! | `compile` | running it |
//! | [`ptx`] | PTX text, taken apart |
//! | `parameter` | reads of a kernel's parameter, made such in the text |
//! | [`stamp`] | launch bounds and alignments, written into the text |
//! | [`contract`] | what the text must and must not hold |
//! | [`stored`] | the file in the repository |
//! | [`gate`] | what ptxas and a disassembler say about it |
#![forbid(unsafe_code)]

pub mod contract;
pub mod gate;
pub mod ptx;
pub mod stamp;
pub mod stored;
pub mod toolchain;

mod compile;
mod cuda_builder;
mod error;
mod parameter;
mod product;
mod sources;

pub use compile::shared_target_dir;
pub use cuda_builder::{Arch, Built, CudaBuilder};
pub use error::{CudaBuilderError, INSTALL_DEBIAN, INSTALL_RUSTUP, Result};
pub use product::{EVERY_LANE_VAR, Origin, kernels, kernels_ptx, stored_path};
