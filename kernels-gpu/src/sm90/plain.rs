//! The link kernel's plain accesses: 16 bytes a thread, a message a warp, eight loads in front of the first store.

use super::memory;
use crate::abi::LinkArgs;
use crate::entries::LINK_THREADS as THREADS;
use crate::shape::CtaPosition;

/// Bytes that a warp accesses at once.
const WARP_BYTES: u64 = 32 * 16;
/// Loads that a thread has in flight.
const UNROLL: u64 = 8;

/// Copies a message; by a whole warp.
#[inline(always)]
unsafe fn copy_message(dst: u64, src: u64, bytes: u64, lane: u64) {
    let mut off = lane * 16;
    while off < bytes {
        let at = |i: u64| off + i * WARP_BYTES;
        // SAFETY: the caller's.
        unsafe {
            let load = |i: u64| if at(i) < bytes { memory::load_v4(src + at(i)) } else { [0; 4] };
            let words = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
            let store = |i: u64, words: [u32; 4]| {
                if at(i) < bytes {
                    memory::store_v4(dst + at(i), words);
                }
            };
            store(0, words[0]);
            store(1, words[1]);
            store(2, words[2]);
            store(3, words[3]);
            store(4, words[4]);
            store(5, words[5]);
            store(6, words[6]);
            store(7, words[7]);
        }
        off += UNROLL * WARP_BYTES;
    }
}

/// Copies this CTA's share of the messages, over and over; by all threads.
#[inline(always)]
pub unsafe fn copy(args: &LinkArgs, at: CtaPosition, thread: u32) {
    let (warp, lane) = (thread / 32 * at.num_ctas + at.cta, thread % 32);
    let warps = THREADS / 32 * at.num_ctas;
    let message = args.message as u64;
    let mut repeat = 0;
    while repeat < args.repeats {
        let mut first = warp as u64 * message;
        while first < args.bytes {
            let left = args.bytes - first;
            let bytes = if left < message { left } else { message };
            // SAFETY: the caller's.
            unsafe { copy_message(args.dst.0 + first, args.src.0 + first, bytes, lane as u64) };
            first += warps as u64 * message;
        }
        repeat += 1;
    }
}

/// Stores the payload of one round, the first message of the source again and again; by all threads.
#[inline(always)]
pub unsafe fn store_payload(args: &LinkArgs, thread: u32) {
    let message = args.message as u64;
    let mut off = thread as u64 * 16;
    while off < message {
        // SAFETY: the caller's.
        unsafe {
            let words = memory::load_v4(args.src.0 + off);
            let mut sent = 0;
            while sent < args.payload {
                memory::store_v4(args.dst.0 + sent as u64 * message + off, words);
                sent += 1;
            }
        }
        off += THREADS as u64 * 16;
    }
}
