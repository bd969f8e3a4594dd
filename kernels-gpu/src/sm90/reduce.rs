//! Addition of slots on Hopper: 16 bytes a thread and access, several accesses in flight.

use super::epilogue::{apply, array_8};
use super::machine::Warpgroup;
use super::matrix::{pack, unpack};
use super::memory;
use crate::config::{Element, ElementType, OperandLayout, OperandTypes, PANEL_BYTES, PANEL_ROWS, Tile, TileConfig};
use crate::layout::swizzle::{CHUNK_BYTES, swizzle_128};
use crate::machine::{Reduce, ReduceJob, RowsFinish};

/// Chunks in a row of a panel; this many threads share a row.
const CHUNKS: u32 = 8;
/// Rows a warpgroup covers at once.
const ROWS_AT_ONCE: u32 = 128 / CHUNKS;

const _: () = assert!(ROWS_AT_ONCE * 4 == PANEL_ROWS, "four accesses a thread cover a panel");

impl<const M: u32, const N: u32, const STAGES: u32, L: OperandLayout, I: OperandTypes, O: ElementType, const BUFS: u32>
    Reduce<Tile<M, N, STAGES, L, I, O, BUFS>> for Warpgroup
{
    #[inline(always)]
    fn reduce(&self, job: &ReduceJob) {
        let panel_cols = Tile::<M, N, STAGES, L, I, O>::PANEL_COLS;
        let chunk_cols = CHUNK_BYTES / O::ELEMENT.bytes();
        let (first_row, chunk) = (self.thread / CHUNKS, self.thread % CHUNKS);
        let mut panel = 0;
        while panel * panel_cols < job.cols {
            let col = panel * panel_cols + chunk * chunk_cols;
            let src = job.slot.0 + (panel * PANEL_BYTES) as u64;
            let offset = |i: u32| swizzle_128(first_row + i * ROWS_AT_ONCE, chunk * CHUNK_BYTES) as u64;
            let exists = |i: u32| first_row + i * ROWS_AT_ONCE < job.rows;
            // SAFETY: zero bits are the float 0. An array literal would become a loop over local memory.
            let mut sums: [[f32; 8]; 4] = unsafe { core::mem::zeroed() };
            // Two slots at a time: their accesses are on their way together.
            let mut slot = 0;
            while slot < job.slots {
                let load = |slot: u32, i: u32| {
                    let at = src + slot as u64 * job.slot_stride + offset(i);
                    // SAFETY: rows that exist have been written by the slot's sender, whose signal was acquired.
                    if slot < job.slots && exists(i) { unsafe { memory::load_v4(at) } } else { [0; 4] }
                };
                let first = [load(slot, 0), load(slot, 1), load(slot, 2), load(slot, 3)];
                let second = [load(slot + 1, 0), load(slot + 1, 1), load(slot + 1, 2), load(slot + 1, 3)];
                add_chunks::<O>(&mut sums, first);
                // Zeros instead of a slot would change the sign of a zero.
                if slot + 1 < job.slots {
                    add_chunks::<O>(&mut sums, second);
                }
                slot += 2;
            }
            if let Some(finish) = &job.finish {
                finish_chunks::<O>(&mut sums, job, finish, col, |i| first_row + i * ROWS_AT_ONCE);
            }
            if col < job.cols {
                let dst = job.dst.0 + (col * O::ELEMENT.bytes()) as u64;
                let store = |i: u32, sum: &[f32; 8]| {
                    if exists(i) && first_row + i * ROWS_AT_ONCE >= job.skip {
                        let row = (first_row + i * ROWS_AT_ONCE - job.skip) as u64;
                        store_chunk::<O>(dst + row * job.dst_stride, sum, job.cols - col);
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

/// Finishes four chunks of a thread, which start at column `col`; `row(i)` is the row of the i-th.
#[inline(always)]
fn finish_chunks<O: ElementType>(
    sums: &mut [[f32; 8]; 4],
    job: &ReduceJob,
    finish: &RowsFinish,
    col: u32,
    row: impl Fn(u32) -> u32,
) {
    let exist = job.cols.saturating_sub(col);
    let at = (col * O::ELEMENT.bytes()) as u64;
    let other = |i: u32| {
        let is_there = finish.how.has_other() && row(i) < job.rows && row(i) >= job.skip;
        let exist = if is_there { exist } else { 0 };
        let addr = finish.c.0 + row(i).saturating_sub(job.skip) as u64 * finish.c_stride + at;
        // SAFETY: rows and columns that exist are in C.
        unsafe { load_chunk::<O>(addr, exist) }
    };
    // SAFETY: columns that exist have a bias.
    let bias = || unsafe { load_chunk::<O>(finish.how.bias.0 + at, exist) };
    sums[0] = apply(sums[0], &other(0), bias, &finish.how);
    sums[1] = apply(sums[1], &other(1), bias, &finish.how);
    sums[2] = apply(sums[2], &other(2), bias, &finish.how);
    sums[3] = apply(sums[3], &other(3), bias, &finish.how);
}

/// The first `exist` elements of a chunk in D's type, others 0: eight of 16 bits, or four f32, twice.
#[inline(always)]
unsafe fn load_chunk<O: ElementType>(addr: u64, exist: u32) -> [f32; 8] {
    let mut words = [0; 4];
    // SAFETY: the caller's: what exists can be read, and chunks start at multiples of 16 bytes.
    unsafe {
        if exist >= CHUNK_BYTES / O::ELEMENT.bytes() {
            words = memory::load_v4(addr);
        } else if exist > 0 {
            words = [
                load_word::<O>(addr, exist, 0),
                load_word::<O>(addr, exist, 1),
                load_word::<O>(addr, exist, 2),
                load_word::<O>(addr, exist, 3),
            ];
        }
    }
    match O::ELEMENT {
        Element::F32 => array_8!(|I| f32::from_bits(words[I % 4])),
        _ => array_8!(|I| unpack::<O>(words[I / 2])[I % 2]),
    }
}

/// Word `word` of a chunk of which `exist` elements exist; others are 0.
#[inline(always)]
unsafe fn load_word<O: ElementType>(addr: u64, exist: u32, word: u32) -> u32 {
    let at = addr + word as u64 * 4;
    let elements = 4 / O::ELEMENT.bytes();
    // SAFETY: the caller's.
    unsafe {
        if exist >= (word + 1) * elements {
            memory::load_u32(at)
        } else if exist > word * elements {
            memory::load_u16_if(at, true)
        } else {
            0
        }
    }
}

/// Adds a thread's four chunks.
#[inline(always)]
fn add_chunks<O: ElementType>(sums: &mut [[f32; 8]; 4], chunks: [[u32; 4]; 4]) {
    add_chunk::<O>(&mut sums[0], chunks[0]);
    add_chunk::<O>(&mut sums[1], chunks[1]);
    add_chunk::<O>(&mut sums[2], chunks[2]);
    add_chunk::<O>(&mut sums[3], chunks[3]);
}

/// Adds a chunk: eight 16-bit elements, or four f32 into the first four sums.
#[inline(always)]
fn add_chunk<O: ElementType>(sum: &mut [f32; 8], chunk: [u32; 4]) {
    match O::ELEMENT {
        Element::F32 => {
            sum[0] += f32::from_bits(chunk[0]);
            sum[1] += f32::from_bits(chunk[1]);
            sum[2] += f32::from_bits(chunk[2]);
            sum[3] += f32::from_bits(chunk[3]);
        }
        _ => {
            let pairs = [unpack::<O>(chunk[0]), unpack::<O>(chunk[1]), unpack::<O>(chunk[2]), unpack::<O>(chunk[3])];
            sum[0] += pairs[0][0];
            sum[1] += pairs[0][1];
            sum[2] += pairs[1][0];
            sum[3] += pairs[1][1];
            sum[4] += pairs[2][0];
            sum[5] += pairs[2][1];
            sum[6] += pairs[3][0];
            sum[7] += pairs[3][1];
        }
    }
}

/// Stores the first `cols` elements of a chunk, rounded.
#[inline(always)]
fn store_chunk<O: ElementType>(dst: u64, sum: &[f32; 8], cols: u32) {
    let words = match O::ELEMENT {
        Element::F32 => [sum[0].to_bits(), sum[1].to_bits(), sum[2].to_bits(), sum[3].to_bits()],
        _ => {
            [pack::<O>(sum[0], sum[1]), pack::<O>(sum[2], sum[3]), pack::<O>(sum[4], sum[5]), pack::<O>(sum[6], sum[7])]
        }
    };
    if cols >= CHUNK_BYTES / O::ELEMENT.bytes() {
        // SAFETY: the row has room for the chunk, and rows of D start at multiples of 16 bytes.
        unsafe { memory::store_v4(dst, words) }
        return;
    }
    store_word::<O>(cols, 0, dst, words[0]);
    store_word::<O>(cols, 1, dst, words[1]);
    store_word::<O>(cols, 2, dst, words[2]);
    store_word::<O>(cols, 3, dst, words[3]);
}

/// Stores those elements of word `word` of a chunk that are below `cols`.
#[inline(always)]
fn store_word<O: ElementType>(cols: u32, word: u32, dst: u64, value: u32) {
    let at = dst + word as u64 * 4;
    let first = word * 4 / O::ELEMENT.bytes();
    // SAFETY: elements below `cols` exist.
    unsafe {
        match O::ELEMENT {
            Element::F32 if first < cols => memory::store_u32(at, value),
            Element::F32 => {}
            _ => {
                if first < cols {
                    memory::store_u16(at, value as u16);
                }
                if first + 1 < cols {
                    memory::store_u16(at + 2, (value >> 16) as u16);
                }
            }
        }
    }
}
