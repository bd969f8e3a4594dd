//! Where a byte is: swizzle, accumulator fragments, matrix descriptors, slots, flagged words. Pure arithmetic, shared by the GPU
//! machine and the emulator.
#![forbid(unsafe_code)]

pub mod flagged;
pub mod fragment;
pub mod matrix_descriptor;
pub mod slot;
pub mod swizzle;
