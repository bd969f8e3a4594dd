//! Addition of slots on Hopper: 16 bytes a thread and access, several accesses in flight.

use super::machine::Warpgroup;
use super::matrix::{pack_bf16x2, unpack_bf16x2};
use super::memory;
use crate::config::{PANEL_BYTES, PANEL_ROWS, Tile, TileConfig};
use crate::layout::swizzle::{CHUNK_BYTES, swizzle_128};
use crate::machine::{Reduce, ReduceJob};

/// Chunks in a row of a panel; this many threads share a row.
const CHUNKS: u32 = 8;
/// Rows a warpgroup covers at once.
const ROWS_AT_ONCE: u32 = 128 / CHUNKS;
/// Elements of a chunk.
const CHUNK_COLS: u32 = CHUNK_BYTES / 2;

const _: () = assert!(ROWS_AT_ONCE * 4 == PANEL_ROWS, "four accesses a thread cover a panel");

impl<const M: u32, const N: u32, const STAGES: u32> Reduce<Tile<M, N, STAGES>> for Warpgroup {
    #[inline(always)]
    fn reduce(&self, job: &ReduceJob) {
        let (first_row, chunk) = (self.thread / CHUNKS, self.thread % CHUNKS);
        let mut panel = 0;
        while panel * Tile::<M, N, STAGES>::PANEL_COLS < job.cols {
            let col = panel * Tile::<M, N, STAGES>::PANEL_COLS + chunk * CHUNK_COLS;
            let src = job.slot.0 + (panel * PANEL_BYTES) as u64;
            let offset = |i: u32| swizzle_128(first_row + i * ROWS_AT_ONCE, chunk * CHUNK_BYTES) as u64;
            let exists = |i: u32| first_row + i * ROWS_AT_ONCE < job.rows;
            let mut sums: [[f32; 8]; 4] = [[0.0; 8], [0.0; 8], [0.0; 8], [0.0; 8]];
            let mut slot = 0;
            while slot < job.slots {
                let at = src + slot as u64 * job.slot_stride;
                // SAFETY: rows that exist have been written by the slot's sender, whose signal was acquired.
                let load = |i: u32| if exists(i) { unsafe { memory::load_v4(at + offset(i)) } } else { [0; 4] };
                let chunks = [load(0), load(1), load(2), load(3)];
                add_chunk(&mut sums[0], chunks[0]);
                add_chunk(&mut sums[1], chunks[1]);
                add_chunk(&mut sums[2], chunks[2]);
                add_chunk(&mut sums[3], chunks[3]);
                slot += 1;
            }
            if col < job.cols {
                let dst = job.dst.0 + col as u64 * 2;
                let store = |i: u32, sum: &[f32; 8]| {
                    if exists(i) {
                        let row = (first_row + i * ROWS_AT_ONCE) as u64;
                        store_chunk(dst + row * job.dst_stride, sum, job.cols - col);
                    }
                };
                store(0, &sums[0]);
                store(1, &sums[1]);
                store(2, &sums[2]);
                store(3, &sums[3]);
            }
            panel += 1;
        }
    }
}

#[inline(always)]
fn add_chunk(sum: &mut [f32; 8], chunk: [u32; 4]) {
    let (a, b, c, d) =
        (unpack_bf16x2(chunk[0]), unpack_bf16x2(chunk[1]), unpack_bf16x2(chunk[2]), unpack_bf16x2(chunk[3]));
    sum[0] += a[0];
    sum[1] += a[1];
    sum[2] += b[0];
    sum[3] += b[1];
    sum[4] += c[0];
    sum[5] += c[1];
    sum[6] += d[0];
    sum[7] += d[1];
}

/// Stores the first `cols` of eight elements, rounded.
#[inline(always)]
fn store_chunk(dst: u64, sum: &[f32; 8], cols: u32) {
    let words = [
        pack_bf16x2(sum[0], sum[1]),
        pack_bf16x2(sum[2], sum[3]),
        pack_bf16x2(sum[4], sum[5]),
        pack_bf16x2(sum[6], sum[7]),
    ];
    if cols >= 8 {
        // SAFETY: the row has room for the chunk, and rows of D start at multiples of 16 bytes.
        unsafe { memory::store_v4(dst, words) }
        return;
    }
    store_if(cols, 0, dst, words[0]);
    store_if(cols, 2, dst, words[1]);
    store_if(cols, 4, dst, words[2]);
    store_if(cols, 6, dst, words[3]);
}

/// Stores those of the two elements `at` and `at + 1` of a chunk that are below `cols`.
#[inline(always)]
fn store_if(cols: u32, at: u32, dst: u64, pair: u32) {
    // SAFETY: elements below `cols` exist.
    unsafe {
        if at < cols {
            memory::store_u16(dst + at as u64 * 2, pair as u16);
        }
        if at + 1 < cols {
            memory::store_u16(dst + at as u64 * 2 + 2, (pair >> 16) as u16);
        }
    }
}
