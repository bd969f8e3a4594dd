//! Flagged words on Hopper: two at a time, from the registers of one thread to those of the same thread of another rank.

use core::arch::asm;

use super::epilogue::{Values, apply, array_8, load_pair, opaque};
use super::machine::Warpgroup;
use super::matrix::{pack, unpack};
use super::{memory, sync};
use crate::config::{Element, ElementType, OperandLayout, OperandTypes, Tile};
use crate::layout::flagged::{FlaggedRows, LANE_WORDS, PLANES, QUAD, WORDS_AT_ONCE, word_col};
use crate::layout::fragment::fragment_coordinates;
use crate::machine::{ExchangeRows, RowsFinish, RowsOut, WarpgroupMma};

/// `st.relaxed.sys.v2.b64`: two words, each written whole.
#[inline(always)]
unsafe fn store_words(addr: u64, data: [u32; 2], flag: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{ .reg .b64 x, y; mov.b64 x, {{{a}, {f}}}; mov.b64 y, {{{b}, {f}}};",
            "st.relaxed.sys.global.v2.b64 [{p}], {{x, y}}; }}",
            p = in(reg64) addr, a = in(reg32) data[0], b = in(reg32) data[1], f = in(reg32) flag, options(nostack)
        )
    };
}

/// `ld.relaxed.sys.v2.b64` where `exists`: two words, each read whole, as data and flag. Else zeros flagged with `flag`. No branch.
#[inline(always)]
unsafe fn load_words(addr: u64, exists: bool, flag: u32) -> [u32; 4] {
    let (a, f, b, g): (u32, u32, u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{ .reg .pred p; .reg .b64 x, y; setp.ne.u32 p, {e}, 0; mov.b64 x, {{0, {w}}}; mov.b64 y, x;",
            "@p ld.relaxed.sys.global.v2.b64 {{x, y}}, [{p}];",
            "mov.b64 {{{a}, {f}}}, x; mov.b64 {{{b}, {g}}}, y; }}",
            p = in(reg64) addr, e = in(reg32) exists as u32, w = in(reg32) flag,
            a = out(reg32) a, f = out(reg32) f, b = out(reg32) b, g = out(reg32) g, options(nostack)
        )
    };
    [a, f, b, g]
}

/// `redux.sync.min.s32` over the warp. Called by every lane of it.
#[inline(always)]
unsafe fn least_of_warp(value: i32) -> i32 {
    let least: i32;
    // SAFETY: the caller's.
    unsafe { asm!("redux.sync.min.s32 {}, {}, 0xffffffff;", out(reg32) least, in(reg32) value, options(nostack)) };
    least
}

/// Rows of a warp that a thread has parts of: eight apart.
const HALVES: usize = 2;

/// Words of both rows of a thread, plane by plane, as data and flag.
type Words = [[[u32; 4]; PLANES as usize]; HALVES];

/// The array of `$e` for the two halves.
macro_rules! halves {
    ($half:ident => $e:expr) => {
        [
            {
                const $half: u32 = 0;
                $e
            },
            {
                const $half: u32 = 1;
                $e
            },
        ]
    };
}

/// The array of `$e` for the four planes.
macro_rules! planes {
    ($plane:ident => $e:expr) => { planes!(@ $plane, $e; 0 1 2 3) };
    (@ $plane:ident, $e:expr; $($n:literal)*) => { [$({ const $plane: u32 = $n; $e }),*] };
}

const _: () = assert!(PLANES == 4 && WORDS_AT_ONCE == 2 && LANE_WORDS == 8, "`planes!` and the words are written out");

/// Row of the thread's registers of half `half`.
#[inline(always)]
fn row_of(thread: u32, half: u32) -> u32 {
    fragment_coordinates(thread, 0).0 + half * 8
}

/// First register of word `word` of half `half`.
const fn register(word: u32, half: u32, element_bytes: u32) -> usize {
    let register = match element_bytes {
        4 => word / 2 * 4 + half * 2 + word % 2,
        _ => word * 4 + half * 2,
    };
    register as usize
}

/// Word `word` of half `half` of a panel, rounded.
#[inline(always)]
fn data<O: ElementType>(panel: &[f32; 32], word: u32, half: u32) -> u32 {
    let register = register(word, half, O::ELEMENT.bytes());
    match O::ELEMENT {
        Element::F32 => panel[register % 32].to_bits(),
        _ => pack::<O>(panel[register % 32], panel[(register + 1) % 32]),
    }
}

impl<const M: u32, const N: u32, const STAGES: u32, L: OperandLayout, I: OperandTypes, O: ElementType, const BUFS: u32>
    ExchangeRows<Tile<M, N, STAGES, L, I, O, BUFS>> for Warpgroup
where
    Self: WarpgroupMma<Tile<M, N, STAGES, L, I, O, BUFS>, Panel = [f32; 32]>,
{
    #[inline(always)]
    fn send_rows(&self, rows: &FlaggedRows, panel: &[f32; 32], epoch: u32) {
        let _ = halves!(HALF => {
            let row = row_of(self.thread, HALF);
            if rows.has(row) {
                let at = rows.at(row, self.thread % QUAD).0;
                let _ = planes!(PLANE => {
                    let word = |at| data::<O>(panel, PLANE * WORDS_AT_ONCE + at, HALF);
                    // SAFETY: kernels pass rows of the peer's words, which are mapped for as long as the call runs.
                    unsafe { store_words(at + PLANE as u64 * rows.plane_bytes(), [word(0), word(1)], epoch) }
                });
            }
        });
    }

    #[inline(always)]
    fn take_rows(&self, rows: &FlaggedRows, epoch: u32) -> Result<[f32; 32], u32> {
        let look: Words = halves!(HALF => {
            let row = row_of(self.thread, HALF);
            let at = rows.at(row, self.thread % QUAD).0;
            // SAFETY: rows that are there are in this rank's words.
            planes!(PLANE => unsafe { load_words(at + PLANE as u64 * rows.plane_bytes(), rows.has(row), epoch) })
        });
        let age = |pair: &[u32; 4]| {
            let of = |flag: u32| flag.wrapping_sub(epoch) as i32;
            if of(pair[1]) < of(pair[3]) { of(pair[1]) } else { of(pair[3]) }
        };
        let mut oldest = 0;
        let mut differs = false;
        let _ = halves!(HALF => planes!(PLANE => {
            let pair = &look[HALF as usize][PLANE as usize];
            differs = differs || pair[1] != epoch || pair[3] != epoch;
            if age(pair) < oldest {
                oldest = age(pair);
            }
        }));
        // SAFETY: every lane of the warp is here.
        unsafe {
            if !sync::vote_all(!differs) {
                return Err(epoch.wrapping_add(least_of_warp(oldest) as u32));
            }
        }
        // SAFETY: zero bits are the float 0. An array literal would become a loop over local memory.
        let mut panel: [f32; 32] = unsafe { core::mem::zeroed() };
        let _ = halves!(HALF => planes!(PLANE => {
            let pair = look[HALF as usize][PLANE as usize];
            let mut put = |at: u32, data: u32| {
                let register = register(PLANE * WORDS_AT_ONCE + at, HALF, O::ELEMENT.bytes());
                match O::ELEMENT {
                    Element::F32 => panel[register % 32] = f32::from_bits(data),
                    _ => {
                        let values = unpack::<O>(data);
                        panel[register % 32] = values[0];
                        panel[(register + 1) % 32] = values[1];
                    }
                }
            };
            put(0, pair[0]);
            put(1, pair[2]);
        }));
        Ok(panel)
    }

    #[inline(always)]
    fn store_rows(&self, out: &RowsOut, panel: &[f32; 32]) {
        if let Some(finish) = &out.finish {
            return finish_rows::<O>(self.thread, out, finish, panel);
        }
        let _ = halves!(HALF => {
            let row = row_of(self.thread, HALF).wrapping_sub(out.first);
            if row < out.rows {
                let dst = out.dst.0 + row as u64 * out.stride;
                let _ = planes!(PLANE => {
                    let store = |word: u32| {
                        let col = word_col(self.thread % QUAD, word, O::ELEMENT.bytes());
                        // SAFETY: columns that exist are in D.
                        unsafe { store_word::<O>(dst, col, out.cols, data::<O>(panel, word, HALF)) }
                    };
                    store(PLANE * WORDS_AT_ONCE);
                    store(PLANE * WORDS_AT_ONCE + 1);
                });
            }
        });
    }
}

/// Stores those elements of `word` that are below column `cols`; its first is column `col` of the row at `row`.
#[inline(always)]
unsafe fn store_word<O: ElementType>(row: u64, col: u32, cols: u32, word: u32) {
    let at = row + (col * O::ELEMENT.bytes()) as u64;
    // SAFETY: the caller's.
    unsafe {
        if col + 4 / O::ELEMENT.bytes() <= cols {
            memory::store_u32(at, word);
        } else if col < cols {
            memory::store_u16(at, word as u16);
        }
    }
}

/// Values that are finished at once: four pairs of neighbouring columns.
const PAIRS: u32 = 4;

/// Finishes a thread's rows, rounds and stores them.
#[inline(always)]
fn finish_rows<O: ElementType>(thread: u32, out: &RowsOut, finish: &RowsFinish, panel: &[f32; 32]) {
    let bytes = O::ELEMENT.bytes();
    let groups = LANE_WORDS * 4 / bytes / (2 * PAIRS);
    // A loop, so that the arithmetic is there once.
    let (mut idx, end) = (0, opaque(groups * HALVES as u32));
    while idx < end {
        let (half, group) = (idx / groups, idx % groups);
        let values = match idx {
            0 => pairs_of::<0, 0>(panel),
            1 if bytes == 2 => pairs_of::<0, 1>(panel),
            3 => pairs_of::<1, 1>(panel),
            _ => pairs_of::<1, 0>(panel),
        };
        let row = row_of(thread, half).wrapping_sub(out.first);
        if row < out.rows {
            let col = |pair: u32| (group * PAIRS + pair) * 8 + thread % QUAD * 2;
            let load = |from: u64, pair: u32| {
                // SAFETY: rows and columns that exist are in C, and columns in the bias.
                unsafe { load_pair::<O>(from + (col(pair) * bytes) as u64, out.cols.saturating_sub(col(pair))) }
            };
            let eight = |from: u64| {
                let pairs = [load(from, 0), load(from, 1), load(from, 2), load(from, 3)];
                array_8!(|I| pairs[I / 2][I % 2])
            };
            let other = if finish.how.has_other() {
                eight(finish.c.0 + row as u64 * finish.c_stride)
            } else {
                array_8!(|_I| 0.0)
            };
            let v = apply(values, &other, || eight(finish.how.bias.0), &finish.how);
            let dst = out.dst.0 + row as u64 * out.stride;
            let store = |pair: u32, low: f32, high: f32| {
                // SAFETY: columns that exist are in D.
                unsafe {
                    match O::ELEMENT {
                        Element::F32 => {
                            store_word::<O>(dst, col(pair), out.cols, low.to_bits());
                            store_word::<O>(dst, col(pair) + 1, out.cols, high.to_bits());
                        }
                        _ => store_word::<O>(dst, col(pair), out.cols, pack::<O>(low, high)),
                    }
                }
            };
            store(0, v[0], v[1]);
            store(1, v[2], v[3]);
            store(2, v[4], v[5]);
            store(3, v[6], v[7]);
        }
        idx += 1;
    }
}

/// Four pairs of a thread's registers: group `GROUP` of half `HALF`.
#[inline(always)]
fn pairs_of<const HALF: usize, const GROUP: usize>(panel: &[f32; 32]) -> Values {
    array_8!(|I| panel[((GROUP * 4 + I / 2) * 4 + HALF * 2 + I % 2) % 32])
}
