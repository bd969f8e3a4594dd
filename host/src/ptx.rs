//! The kernels as PTX, embedded when this crate is built.

/// PTX of every kernel in [`ENTRIES`](crate::kernels::entries::ENTRIES), for sm_90a.
pub static PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
