//! Weights of real models, from safetensors files: the feed-forward down projections, whose product is summed over
//! ranks when a layer is sharded. They are the B of GEMM + ReduceScatter.
//!
//! A down projection is a 2-D tensor (N × K: hidden × intermediate) whose name ends in `output.dense.weight` or
//! `down_proj.weight` and does not contain `attention`. [`ModelFile`] finds and reads them, [`KShards`] cuts K into ranks.
//!
//! ```no_run
//! use tilewire::model::{KShards, ModelFile};
//!
//! let file = ModelFile::open("model.safetensors")?;
//! let first = &file.down_projections()?[0];
//! let b = KShards::new(first.k, 4)?.cut(file.read(first)?.view())?;
//! # Ok::<(), tilewire::Error>(())
//! ```

mod file;
mod nearest;
mod shard;

pub use file::{DownProjection, ModelFile};
pub use shard::KShards;
