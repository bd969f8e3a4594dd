//! The way of the ends of rows to D, where these are no whole number of the 16 bytes in which the copy engine stores.

use super::machine::Cta;
use super::{matrix, memory, sync};
use crate::layout::swizzle::swizzle_128;
use crate::machine::RowEnds;

/// Stores the ends of rows `first`, `first + distance` and so on of a panel.
///
/// # Safety
/// Rows of `ends` exist in D, and its panel in the CTA's memory.
#[inline(always)]
pub(super) unsafe fn store_row_ends(cta: &Cta, ends: &RowEnds, first: u32, distance: u32) {
    let (src, mut row) = (cta.at(ends.src), first);
    // SAFETY: the caller's.
    unsafe {
        while row < ends.rows {
            let words = matrix::load_v4(src + swizzle_128(row, ends.off));
            memory::store_first(ends.dst.0 + row as u64 * ends.stride, words, ends.bytes);
            row += distance;
        }
        sync::fence_proxy_async_shared()
    }
}
