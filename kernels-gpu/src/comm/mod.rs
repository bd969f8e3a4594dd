//! Communication: which rank owns what, where it lies, and the signals that say it is there.
#![forbid(unsafe_code)]

pub mod route;
pub mod signal;
pub mod workspace;
