//! Which tile, in which order. Pure: position and grid are arguments.
#![forbid(unsafe_code)]

pub mod chunked;
pub mod mixed;
pub mod raster;
pub mod shared;
pub mod split_k;
