//! Between the ops and the machines: what one launch is, and the checks that come before it.

pub mod check;
mod cost;
pub mod launch;
pub mod operand;
pub mod scales;
pub mod select;
pub mod variant;

pub use launch::RankLaunch;
pub use operand::{MatrixArg, MatrixRole};
pub use scales::{Scales, TensorScales};
pub use select::SplitK;
pub use variant::{Layout, Variant};
