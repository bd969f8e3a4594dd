//! Copies between two places and signals between two peers, for timing a link: no kernel of an op, but made of the same parts.
//!
//! One thread of a CTA drives the copy engine: bytes go through buffers in shared memory, several of which are filled while
//! others are emptied. Which of source and destination is the peer's says whether that pushes or pulls. Messages of the asked
//! size cross the link; the other side of a buffer is copied whole.

use crate::abi::{LinkArgs, LinkRound, LinkTimes, WaitKind};
use crate::comm::signal::{put_signal, wait_signal};
use crate::config::{SmemPlan, Tile64x128, TileConfig};
use crate::machine::{Aborted, Mbarriers, Stopwatch, ThreadRole};
use crate::pipeline::wait::wait_mbarrier;
use crate::shape::{CtaPosition, GlobalAddr, Parity, Role, SmemAddr};

/// Where the barriers lie: those of the smaller tile's plan. Everything before them holds buffers.
pub const PLAN: SmemPlan = <Tile64x128>::SMEM;
/// Most buffers.
pub const MAX_DEPTH: u32 = 8;
/// Shared memory for buffers, in bytes.
pub const BUFFER_BYTES: u32 = PLAN.full().0.0;

const _: () = assert!(MAX_DEPTH <= <Tile64x128>::STAGES, "the plan has a full barrier for every buffer");

/// By one thread of each CTA, before anything else.
#[inline(always)]
pub fn setup<M: Mbarriers>(m: &M) {
    let mut idx = 0;
    while idx < MAX_DEPTH {
        m.mbarrier_init(PLAN.full().at(idx), 1);
        idx += 1;
    }
}

/// One CTA's share of a copy: every `num_ctas`-th stage, over and over.
#[derive(Clone, Copy)]
struct Share {
    stage: u32,
    stages: u32,
    at: CtaPosition,
}

impl Share {
    #[inline(always)]
    fn new(args: &LinkArgs, at: CtaPosition) -> Self {
        let size = if args.stage == 0 { 1 } else { args.stage as u64 };
        Self { stage: at.cta, stages: args.bytes.div_ceil(size) as u32, at }
    }

    /// Stages of one copy that are this CTA's.
    #[inline(always)]
    fn len(&self) -> u32 {
        if self.at.cta >= self.stages { 0 } else { (self.stages - self.at.cta - 1) / max1(self.at.num_ctas) + 1 }
    }

    /// First byte of the present stage and its size.
    #[inline(always)]
    fn bytes(&self, args: &LinkArgs) -> (u64, u32) {
        let first = self.stage as u64 * args.stage as u64;
        let left = args.bytes - first;
        (first, if left < args.stage as u64 { left as u32 } else { args.stage })
    }

    /// Goes on to the next stage; whether that is the first one again.
    #[inline(always)]
    fn advance(&mut self) -> bool {
        self.stage += self.at.num_ctas;
        let again = self.stage >= self.stages;
        if again {
            self.stage = self.at.cta;
        }
        again
    }
}

/// Division by it cannot fail then.
#[inline(always)]
const fn max1(n: u32) -> u32 {
    if n == 0 { 1 } else { n }
}

/// Calls `copy` with the offset and size of each piece of `bytes` bytes.
#[inline(always)]
fn in_pieces(bytes: u32, piece: u32, copy: impl Fn(u32, u32)) {
    let mut off = 0;
    while off < bytes {
        let size = if bytes - off < piece { bytes - off } else { piece };
        copy(off, size);
        off += max1(piece);
    }
}

/// Copies this CTA's share; by one thread.
///
/// `DEPTH` buffers, at most `UNREAD` of which a bulk store has yet to read; the others are filled ahead.
#[inline(always)]
fn copy<M: ThreadRole, const DEPTH: u32, const UNREAD: u32>(
    m: &M,
    args: &LinkArgs,
    at: CtaPosition,
) -> Result<(), Aborted> {
    let (load_size, store_size) = if args.pulls != 0 { (args.message, args.stage) } else { (args.stage, args.message) };
    let (mut loading, mut storing) = (Share::new(args, at), Share::new(args, at));
    let total = loading.len() * args.repeats;
    let (mut loaded, mut stored) = (0, 0);
    while stored < total {
        while loaded < total && loaded < stored + DEPTH - UNREAD {
            let (idx, (first, bytes)) = (loaded % DEPTH, loading.bytes(args));
            let full = PLAN.full().at(idx);
            m.arrive_expect_tx(full, bytes);
            in_pieces(bytes, load_size, |off, size| {
                let src = args.src.plus(first + off as u64);
                m.load_bytes(SmemAddr(idx * args.stage + off), src, size, full);
            });
            loading.advance();
            loaded += 1;
        }
        let (idx, (first, bytes)) = (stored % DEPTH, storing.bytes(args));
        let parity = Parity::of_phase(stored / DEPTH);
        wait_mbarrier(m, Role::Producer, WaitKind::StageFull, idx, PLAN.full().at(idx), parity)?;
        in_pieces(bytes, store_size, |off, size| {
            m.store_bytes(args.dst.plus(first + off as u64), SmemAddr(idx * args.stage + off), size);
        });
        m.commit_group();
        stored += 1;
        if storing.advance() {
            // What is written again has been written before.
            m.wait_group_complete::<0>();
        } else {
            m.wait_group_read::<UNREAD>();
        }
    }
    m.wait_group_complete::<0>();
    Ok(())
}

/// Copies this CTA's share by bulk copies; by one thread.
#[inline(always)]
pub fn copy_bulk<M: ThreadRole>(m: &M, args: &LinkArgs, at: CtaPosition) -> Result<(), Aborted> {
    match args.depth {
        8 => copy::<M, 8, 4>(m, args, at),
        4 => copy::<M, 4, 2>(m, args, at),
        2 => copy::<M, 2, 1>(m, args, at),
        _ => copy::<M, 1, 0>(m, args, at),
    }
}

/// One side's rounds of a ping-pong; by one thread. `send` stores the payload, and `settle` waits until it is written.
#[inline(always)]
pub fn ping_pong<M: ThreadRole + Stopwatch>(
    m: &M,
    args: &LinkArgs,
    send: impl Fn(),
    signal: impl Fn(GlobalAddr, u32),
) -> Result<(), Aborted> {
    let (ticks, nanoseconds) = (m.ticks(), m.nanoseconds());
    let mut round = 0;
    while round < args.repeats {
        let epoch = args.epoch.wrapping_add(round);
        let answer = || wait_signal(m, Role::Producer, WaitKind::Signal, round & 0xFF_FFFF, args.own_word, epoch);
        if args.begins == 0 {
            answer()?;
        }
        let start = m.ticks();
        send();
        let sent = m.ticks();
        signal(args.peer_word, epoch);
        let released = m.ticks();
        let mut round_trip = 0;
        if args.begins != 0 {
            answer()?;
            round_trip = m.ticks().wrapping_sub(start);
        }
        let record = args.times.plus(size_of::<LinkTimes>() as u64 + round as u64 * size_of::<LinkRound>() as u64);
        m.store_release_gpu(record, sent.wrapping_sub(start));
        m.store_release_gpu(record.plus(4), released.wrapping_sub(sent));
        m.store_release_gpu(record.plus(8), round_trip);
        round += 1;
    }
    m.store_release_gpu(args.times, m.ticks().wrapping_sub(ticks));
    m.store_release_gpu(args.times.plus(4), m.nanoseconds().wrapping_sub(nanoseconds));
    Ok(())
}

/// A ping-pong whose payload goes by bulk stores of one message in shared memory; by one thread.
#[inline(always)]
pub fn ping_pong_bulk<M: ThreadRole + Stopwatch>(m: &M, args: &LinkArgs) -> Result<(), Aborted> {
    let full = PLAN.full();
    if args.payload > 0 {
        m.arrive_expect_tx(full, args.message);
        m.load_bytes(SmemAddr(0), args.src, args.message, full);
        wait_mbarrier(m, Role::Producer, WaitKind::StageFull, 0, full, Parity(0))?;
    }
    let send = || {
        let mut sent = 0;
        while sent < args.payload {
            m.store_bytes(args.dst.plus(sent as u64 * args.message as u64), SmemAddr(0), args.message);
            sent += 1;
        }
        if args.payload > 0 {
            m.commit_group();
            if args.waits != 0 {
                m.wait_group_complete::<0>();
            }
        }
    };
    let signal = |word: GlobalAddr, epoch: u32| {
        if args.waits != 0 {
            put_signal::<0, M>(m, word, epoch);
        } else {
            m.store_release_sys(word, epoch);
        }
    };
    ping_pong(m, args, send, signal)?;
    m.wait_group_complete::<0>();
    Ok(())
}
