//! What the fuzz targets do with their bytes. `tests/fuzz_corpus.rs` calls the same functions on the stored corpus, and on
//! changed copies of it, with a stable toolchain.
//!
//! Each function takes any bytes, and panics when a promise of the library is broken.
#![allow(dead_code, reason = "each target uses one")]

mod calls;
mod input;
#[path = "../../tests/properties/mod.rs"]
mod properties;
mod weights;

pub use calls::{operands, plan};
pub use weights::{maps, safetensors};

/// A target: its name, which is also that of its corpus, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 4] = [("plan", plan), ("operands", operands), ("maps", maps), ("safetensors", safetensors)];
