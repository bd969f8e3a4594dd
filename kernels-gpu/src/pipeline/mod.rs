//! Rings of shared-memory buffers: which buffer, which phase, and the protocol over mbarriers.
#![forbid(unsafe_code)]

pub mod ring;
pub mod state;
pub mod wait;
