//! The Hopper machine: PTX instructions, one function each, and the machine traits over them. The only `unsafe` and the
//! only inline assembly of the crate; compiled for nvptx64 alone.

pub mod bulk;
pub mod epilogue;
mod exchange;
pub mod machine;
pub mod matrix;
pub mod mbarrier;
pub mod memory;
pub mod mma;
pub mod plain;
pub mod reduce;
mod row_ends;
pub mod sync;
pub mod thread;
pub mod warp;
pub mod wgmma;

use core::panic::PanicInfo;

/// No panic path reaches the PTX (its contract forbids the call); the target wants a handler all the same.
#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    // SAFETY: `trap` ends the kernel.
    unsafe { core::arch::nvptx::trap() }
}
