//! Words that every layer shares: addresses, barriers, ranks and roles as types of their own, so that two of them
//! cannot be swapped.
#![forbid(unsafe_code)]

/// Most ranks a world may have.
pub const MAX_WORLD: usize = 8;

/// Warps in a warpgroup; also the arrivals a warpgroup role makes on an mbarrier (one a warp).
pub const WARPS_PER_WARPGROUP: u32 = 4;

/// Threads in a warpgroup.
pub const WARPGROUP_THREADS: u32 = 128;

/// One rank of a world, `0..world`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// A byte offset from the start of a CTA's dynamic shared memory.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmemAddr(pub u32);

impl SmemAddr {
    /// The address `bytes` further on.
    #[inline(always)]
    pub const fn plus(self, bytes: u32) -> Self {
        Self(self.0 + bytes)
    }
}

/// The shared-memory address of an mbarrier (8 bytes, 8-byte aligned).
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mbarrier(pub SmemAddr);

impl Mbarrier {
    /// Bytes one mbarrier takes.
    pub const BYTES: u32 = 8;

    /// The `idx`-th mbarrier of an array that starts with this one.
    #[inline(always)]
    pub const fn at(self, idx: u32) -> Self {
        Self(self.0.plus(idx * Self::BYTES))
    }
}

/// An address in global memory: on this rank's GPU, on a mapped peer, or in mapped host memory.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GlobalAddr(pub u64);

impl GlobalAddr {
    /// The address `bytes` further on.
    #[inline(always)]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// The phase bit passed to `mbarrier.try_wait.parity`: the wait ends once the phase with this parity has completed.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parity(pub u32);

impl Parity {
    /// Parity of the `n`-th phase of a barrier, counted from 0.
    #[inline(always)]
    pub const fn of_phase(n: u32) -> Self {
        Self(n & 1)
    }
}

/// What a group of threads does in a kernel; one agent of the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// One elected thread: brings operand tiles into shared memory.
    Producer,
    /// One warp, acting as one: takes finished panels out of shared memory, to memory or to a peer.
    Storer,
    /// One elected thread: brings peers' partials into shared memory.
    Loader,
    /// One warpgroup: multiplies, and writes panels; the number is its index, which is also its half of the tile.
    Consumer(u32),
}

impl Role {
    /// The number under which fault records name this role.
    #[inline(always)]
    pub const fn code(self) -> u32 {
        match self {
            Role::Producer => 0,
            Role::Storer => 1,
            Role::Loader => 2,
            Role::Consumer(idx) => 3 + idx,
        }
    }

    /// The role that [`Role::code`] turned into `code`.
    pub const fn from_code(code: u32) -> Self {
        match code {
            0 => Role::Producer,
            1 => Role::Storer,
            2 => Role::Loader,
            n => Role::Consumer(n - 3),
        }
    }
}

/// Where a CTA stands in its grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtaPosition {
    /// This CTA, `0..num_ctas`.
    pub cta: u32,
    /// CTAs in the grid.
    pub num_ctas: u32,
}

/// `a / b` rounded up; 0 when `b` is 0, so that no panic path reaches device code.
#[inline(always)]
pub const fn div_ceil(a: u32, b: u32) -> u32 {
    match a.checked_div(b) {
        Some(q) => {
            if q * b < a {
                q + 1
            } else {
                q
            }
        }
        None => 0,
    }
}

/// `(a / b, a % b)`; `(0, a)` when `b` is 0, so that no panic path reaches device code.
#[inline(always)]
pub const fn div_rem(a: u32, b: u32) -> (u32, u32) {
    match a.checked_div(b) {
        Some(q) => (q, a - q * b),
        None => (0, a),
    }
}

/// The smaller of two numbers, in const context.
#[inline(always)]
pub const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

/// The larger of two numbers, in const context.
#[inline(always)]
pub const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}
