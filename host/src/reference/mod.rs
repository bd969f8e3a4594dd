//! References on the CPU: what the ops must compute, by an algorithm that has nothing in common with theirs.
//!
//! [`gemm()`] is the truth in f64; [`reduce_scatter()`] is the protocol's arithmetic, bit for bit; [`fused`] composes the
//! two; [`sampled`] computes chosen elements of problems that are too big to compute whole.
//!
//! The sums of a GEMM are taken in f64, blocked and vectorised by the `matrixmultiply` crate, one task per block of
//! rows. The blocks do not depend on the number of threads, so neither do the results. An f64 sum of products of bf16
//! or f16 has 29 more bits than the f32 sum that it judges: against an f32 accumulator it counts as exact, and for
//! integers below 2⁵³ it is.

pub mod epilogue;
pub mod fused;
mod gemm;
mod reduce_scatter;
pub mod sampled;

pub use gemm::{Layout, gemm, gemm_scaled, product_shape};
pub use reduce_scatter::{chunks_of, reduce_scatter};

#[cfg(test)]
mod naive;
