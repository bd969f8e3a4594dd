//! Between the ops and the machines: what one launch is, and the checks that come before it.

pub mod check;
mod cost;
mod cut;
pub mod launch;
pub mod operand;
pub mod scales;
pub mod select;
pub mod variant;

pub use cut::SplitK;
pub use launch::RankLaunch;
pub use operand::{MatrixArg, MatrixRole};
pub use scales::{Scales, TensorScales};
pub use variant::{Layout, Variant};
