//! Is a result right? By tolerance against a reference in f64, or bit by bit.
//!
//! | question | call | passes when |
//! | --- | --- | --- |
//! | right within rounding? | [`compare`], then [`Report::check`] | every element is within the [`Tolerance`] |
//! | the same bits? | [`compare_bits`] | every bit pattern is equal, NaNs and signs of zeros included |
//!
//! The bits of a NaN are no result: GPUs and CPUs choose them differently. Where NaNs are expected, [`compare`] is the one
//! to use; it takes any NaN for any other.

mod bits;
mod report;
mod tolerance;

pub use bits::{BitDifference, compare_bits};
pub use report::{Extreme, Place, Report, compare, compare_chunks, compare_placed};
pub use tolerance::{GemmNumerics, Tolerance, Value, operand_scale};
