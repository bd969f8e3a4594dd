//! The ops: each a plan, built once with everything large, and called with what differs per call.

pub mod epilogue;
pub mod gemm;
pub mod gemm_reduce_scatter;
mod gemm_shares;
mod kernels;
mod maps;
mod pacing;
mod reduce_scatter_builder;
mod reduce_scatter_epilogue;

pub use epilogue::{Activation, Epilogue, RawEpilogue, TensorEpilogue};
pub use gemm::{Gemm, GemmBuilder};
pub use gemm_reduce_scatter::{GemmReduceScatter, RankMatrices};
pub use reduce_scatter_builder::GemmReduceScatterBuilder;
