//! Source and destination of a store are swapped.

use tilewire_kernels::machine::BulkCopy;
use tilewire_kernels::shape::{GlobalAddr, SmemAddr};

pub fn store<M: BulkCopy>(m: &M, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
    m.store_bytes(src, dst, bytes);
}

fn main() {}
