//! One role's loop over one tile, and the barriers that the roles share. No PTX, no order of roles: that is in
//! [`crate::kernels`].
#![forbid(unsafe_code)]

pub mod carry;
pub mod epilogue;
pub mod finish;
pub mod mainloop;
pub mod partials;
pub mod ping_pong;
pub mod result;
pub mod setup;
pub mod share;
pub mod turn_partials;
