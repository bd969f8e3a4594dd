//! The link kernel: copies between two places and signals between two GPUs, by means and sizes that a bench chooses.

use std::time::Duration;

use crate::driver::{DeviceBuffer, Function, Gpu, LaunchShape, MappedHost, Module, Stream, launch};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::kernels::abi::{FaultRecord, Launch, LinkArgs, LinkMode, LinkRound, LinkTimes, MAPS, TensorMap, Watchdog};
use crate::kernels::entries::LINK;
use crate::kernels::kernels::link::{BUFFER_BYTES, MAX_DEPTH};
use crate::kernels::shape::{GlobalAddr, MAX_WORLD};
use crate::plan::check;
use crate::ptx;

/// How long a signal is waited for.
const DEADLINE: Duration = Duration::from_secs(2);
/// What all accesses of the kernel are multiples of.
const STEP: usize = 16;

/// By which means bytes cross the link. Who launches the kernel, and where source and destination lie, must fit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Means {
    /// Bulk copies from shared memory to the peer.
    BulkPush,
    /// Bulk copies from the peer to shared memory.
    BulkPull,
    /// Plain 16-byte stores to the peer.
    PlainPush,
    /// Plain 16-byte loads from the peer.
    PlainPull,
}

impl Means {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::BulkPush, Self::BulkPull, Self::PlainPush, Self::PlainPull];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BulkPush => "TMA push",
            Self::BulkPull => "TMA pull",
            Self::PlainPush => "plain push",
            Self::PlainPull => "plain pull",
        }
    }

    /// Whether the side that runs the kernel fetches.
    pub const fn pulls(self) -> bool {
        matches!(self, Self::BulkPull | Self::PlainPull)
    }

    const fn is_bulk(self) -> bool {
        matches!(self, Self::BulkPush | Self::BulkPull)
    }
}

/// A copy by the link kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCopy {
    /// By which means.
    pub means: Means,
    /// Bytes of a message, a multiple of 16: of one bulk copy over the link, or of what a warp copies at a time.
    pub message: usize,
    /// CTAs, at most one for each SM.
    pub ctas: u32,
    /// Bytes to copy, a multiple of 16.
    pub bytes: usize,
    /// Times that all of them are copied in one launch.
    pub repeats: u32,
}

/// Shared-memory buffers for messages of `message` bytes: bytes of one, and how many.
///
/// A buffer holds as many messages as fit an eighth of shared memory; larger messages get fewer buffers.
pub const fn buffers(message: usize) -> (u32, u32) {
    let (message, all) = (message as u32, BUFFER_BYTES);
    let mut depth = MAX_DEPTH;
    while depth > 1 && message > all / depth {
        depth /= 2;
    }
    let most = all / depth;
    (if message >= most { message } else { most / message * message }, depth)
}

impl LinkCopy {
    /// Checks the sizes.
    ///
    /// # Errors
    /// [`Error::Argument`] with the argument, its value and its rule.
    pub fn check(&self, sms: u32) -> Result<()> {
        message("message", self.message)?;
        if !self.bytes.is_multiple_of(STEP) {
            return Err(Error::argument("bytes", self.bytes, "copies go in steps of 16 bytes"));
        }
        if self.ctas == 0 || self.ctas > sms {
            return Err(Error::argument("ctas", self.ctas, format!("there is one for each of 1 to {sms} SMs")));
        }
        let stages = self.bytes.div_ceil(buffers(self.message).0 as usize) as u64 * u64::from(self.repeats);
        if stages > u64::from(u32::MAX / 2) {
            return Err(Error::argument(
                "repeats",
                self.repeats,
                format!("{stages} buffers are more than can be counted"),
            ));
        }
        Ok(())
    }

    /// The kernel's arguments, but for its watchdog.
    pub fn args(&self, dst: GlobalAddr, src: GlobalAddr, watchdog: Watchdog) -> LinkArgs {
        let (stage, depth) = buffers(self.message);
        LinkArgs {
            mode: if self.means.is_bulk() { LinkMode::Bulk } else { LinkMode::Plain } as u32,
            message: self.message as u32,
            stage,
            depth,
            repeats: self.repeats,
            pulls: self.means.pulls().into(),
            begins: 0,
            epoch: 0,
            payload: 0,
            waits: 0,
            bytes: self.bytes as u64,
            src,
            dst,
            own_word: GlobalAddr(0),
            peer_word: GlobalAddr(0),
            times: GlobalAddr(0),
            watchdog,
        }
    }
}

fn message(name: &str, bytes: usize) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(STEP) || bytes > BUFFER_BYTES as usize {
        let rule = format!("messages are multiples of 16 bytes, 16 to {BUFFER_BYTES}");
        return Err(Error::argument(name, bytes, rule));
    }
    Ok(())
}

/// Signals that two sides exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingPong {
    /// Rounds: each side signals once a round.
    pub rounds: u32,
    /// Messages that each side stores to the other one before each of its signals.
    pub payload: u32,
    /// Bytes of such a message, a multiple of 16.
    pub message: usize,
    /// Whether payload goes by plain stores of 512 threads; by bulk stores of one otherwise.
    pub plain: bool,
    /// Whether a signal waits until bulk stores have been written. Otherwise it may overtake them: that is for timing only.
    pub waits: bool,
}

/// What the rounds of a ping-pong took on one side, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTimes {
    /// Issuing the payload.
    pub payload: Vec<f64>,
    /// The signal's release, with the wait for the payload before it where one was asked for.
    pub release: Vec<f64>,
    /// From the start of the payload until the other side's answer was seen; empty on the side that answers.
    pub round_trip: Vec<f64>,
}

impl PingPong {
    fn check(&self) -> Result<()> {
        message("message", self.message)?;
        if self.rounds == 0 {
            return Err(Error::argument("rounds", 0, "a ping-pong has at least one"));
        }
        Ok(())
    }

    /// Bytes of payload of one round.
    pub fn payload_bytes(&self) -> usize {
        self.payload as usize * self.message
    }
}

/// Turns what a ping-pong recorded into seconds. The first round, in which one side waits for the other to start, is left out.
pub fn round_times(total: LinkTimes, rounds: &[LinkRound], begins: bool) -> RoundTimes {
    let tick = f64::from(total.nanoseconds) * 1e-9 / f64::from(total.ticks.max(1));
    let rounds = rounds.get(1..).unwrap_or_default();
    let seconds = |of: fn(&LinkRound) -> u32| rounds.iter().map(|r| f64::from(of(r)) * tick).collect();
    let round_trip = if begins { seconds(|r| r.round_trip) } else { Vec::new() };
    RoundTimes { payload: seconds(|r| r.payload), release: seconds(|r| r.release), round_trip }
}

/// The link kernel on one GPU.
#[derive(Debug)]
pub struct LinkKernel {
    function: Function,
    /// Abort and claim word of copies.
    words: DeviceBuffer,
    record: MappedHost<FaultRecord>,
}

const ABORT: u64 = 0;
const CLAIM: u64 = 128;
const SIGNAL: u64 = 256;

/// Abort word, claim word and the word that a peer signals, each in a line of its own, at rest.
fn words(gpu: &Gpu) -> Result<DeviceBuffer> {
    DeviceBuffer::filled(gpu, 384, 0)
}

impl LinkKernel {
    /// Loads the kernel.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let function = Module::load(gpu, &ptx::only(&LINK)?)?.entry(&LINK)?;
        Ok(Self { function, words: words(gpu)?, record: MappedHost::new(gpu, FaultRecord::default())? })
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Gpu {
        self.function.gpu()
    }

    /// Bounds of its waits; `words[rank]` are its own words, and all sides' abort words are raised together.
    fn watchdog(&self, rank: usize, words: &[GlobalAddr]) -> Watchdog {
        let mut peer_aborts = [GlobalAddr(0); MAX_WORLD];
        for (abort, words) in peer_aborts.iter_mut().zip(words) {
            *abort = words.plus(ABORT);
        }
        Watchdog {
            deadline_ns: check::deadline_ns(DEADLINE),
            abort: words[rank].plus(ABORT),
            claim: words[rank].plus(CLAIM),
            record: self.record.addr(),
            rank: rank as u32,
            world: words.len() as u32,
            peer_aborts,
            local_ns: Watchdog::local_deadline_ns(check::deadline_ns(DEADLINE), words.len() as u32),
        }
    }

    /// Enqueues a copy to `dst` from `src`, one of which may be on another GPU that this one has access to. Waits for nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] if a size breaks its rule or a buffer is too small; [`Error::Driver`].
    pub fn copy(&self, copy: &LinkCopy, dst: &DeviceBuffer, src: &DeviceBuffer, stream: &Stream) -> Result<()> {
        copy.check(self.gpu().sm_count())?;
        for (name, buffer) in [("dst", dst), ("src", src)] {
            if buffer.bytes() < copy.bytes {
                let rule = format!("{} bytes are copied", copy.bytes);
                return Err(Error::argument(name, format!("{} bytes", buffer.bytes()), rule));
            }
        }
        let args = copy.args(dst.addr(), src.addr(), self.watchdog(0, &[self.words.addr()]));
        // SAFETY: both buffers are as long as is said, and their uses are recorded below.
        unsafe { self.launch(copy.ctas, args, stream)? };
        dst.record_use(stream)?;
        src.record_use(stream)
    }

    /// # Safety
    /// The addresses in `args` are valid until the kernel has ended.
    unsafe fn launch(&self, ctas: u32, args: LinkArgs, stream: &Stream) -> Result<()> {
        let param = Launch { maps: [TensorMap::UNUSED; MAPS], args };
        // SAFETY: the parameter is the entry's; the caller vouches for the addresses.
        unsafe { launch(&self.function, &LaunchShape::of_entry(&LINK, ctas), &param, stream)? };
        self.words.record_use(stream)?;
        self.record.record_use(stream)
    }

    /// The fault that a wait of this kernel recorded, if one did. Call it when the stream has been waited for.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn check(&self) -> Result<()> {
        match self.record.read() {
            record if record.state != 0 => Err(Box::new(Fault { op: "link", record: Some(record) }).into()),
            _ => Ok(()),
        }
    }
}

/// Runs a ping-pong of two sides, one CTA each, and waits for it: `sides[0]` signals first. `targets[s]`, on side s, takes what
/// the other side sends; `sources[s]`, on side s, holds one message of it.
///
/// # Errors
/// [`Error::Argument`] if a size breaks its rule, [`Error::Fault`] if a side waited longer than two seconds;
/// [`Error::Driver`].
pub fn ping_pong(
    sides: [&LinkKernel; 2],
    spec: &PingPong,
    targets: [&DeviceBuffer; 2],
    sources: [&DeviceBuffer; 2],
    streams: [&Stream; 2],
) -> Result<[RoundTimes; 2]> {
    spec.check()?;
    for (buffer, needed) in
        targets.map(|t| (t, spec.payload_bytes())).into_iter().chain(sources.map(|s| (s, spec.message)))
    {
        if buffer.bytes() < needed {
            let rule = format!("a round takes {needed} bytes");
            return Err(Error::argument("buffer", format!("{} bytes", buffer.bytes()), rule));
        }
    }
    let record_bytes = size_of::<LinkTimes>() + spec.rounds as usize * size_of::<LinkRound>();
    let (mut times, mut all_words) = (Vec::new(), Vec::new());
    for side in sides {
        side.record.write(FaultRecord::default());
        times.push(DeviceBuffer::filled(side.gpu(), record_bytes, 0)?);
        all_words.push(words(side.gpu())?);
    }
    let addrs = [all_words[0].addr(), all_words[1].addr()];
    let mode = if spec.plain { LinkMode::PlainPingPong } else { LinkMode::PingPong } as u32;
    for (at, side) in sides.into_iter().enumerate() {
        let peer = 1 - at;
        let args = LinkArgs {
            mode,
            message: spec.message as u32,
            stage: spec.message as u32,
            depth: 1,
            repeats: spec.rounds,
            pulls: 0,
            begins: (at == 0).into(),
            epoch: 1,
            payload: spec.payload,
            waits: spec.waits.into(),
            bytes: 0,
            src: sources[at].addr(),
            dst: targets[peer].addr(),
            own_word: addrs[at].plus(SIGNAL),
            peer_word: addrs[peer].plus(SIGNAL),
            times: times[at].addr(),
            watchdog: side.watchdog(at, &addrs),
        };
        // SAFETY: the buffers are as long as is checked above and outlive the kernels, which are waited for below.
        unsafe { side.launch(1, args, streams[at])? };
        for buffer in [sources[at], targets[peer], &times[at], &all_words[0], &all_words[1]] {
            buffer.record_use(streams[at])?;
        }
    }
    streams.iter().try_for_each(|stream| stream.synchronize())?;
    sides.iter().try_for_each(|side| side.check())?;
    let mut found = Vec::new();
    for (at, times) in times.iter().enumerate() {
        let words: Vec<u32> = times.to_vec()?;
        let total = LinkTimes { ticks: words[0], nanoseconds: words[1] };
        let round = |w: &[u32]| LinkRound { payload: w[0], release: w[1], round_trip: w[2], reserved: w[3] };
        let rounds: Vec<_> = words[2..].chunks_exact(4).map(round).collect();
        found.push(round_times(total, &rounds, at == 0));
    }
    let answering = found.pop().unwrap_or_default();
    Ok([found.pop().unwrap_or_default(), answering])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_whole_messages_and_fit_shared_memory() {
        for message in (16..=BUFFER_BYTES as usize).step_by(16) {
            let (stage, depth) = buffers(message);
            assert!(
                (stage as usize).is_multiple_of(message) && stage * depth <= BUFFER_BYTES,
                "{message}: {stage} × {depth}"
            );
            assert!([1, 2, 4, 8].contains(&depth));
        }
        assert_eq!(buffers(256), (28_672, 8));
        assert_eq!(buffers(32 << 10), (32 << 10, 4));
        assert_eq!(buffers(64 << 10), (64 << 10, 2));
        assert_eq!(buffers(BUFFER_BYTES as usize), (BUFFER_BYTES, 1));
    }

    #[test]
    fn sizes_that_the_kernel_cannot_take_are_refused_by_name() {
        let good = LinkCopy { means: Means::BulkPush, message: 256, ctas: 4, bytes: 4096, repeats: 1 };
        good.check(132).unwrap();
        let message = |copy: LinkCopy| copy.check(132).unwrap_err().to_string();
        assert!(message(LinkCopy { message: 24, ..good }).starts_with("message is 24, but"));
        assert!(message(LinkCopy { message: 0, ..good }).starts_with("message is 0, but"));
        assert!(message(LinkCopy { bytes: 4097, ..good }).starts_with("bytes is 4097, but"));
        assert!(message(LinkCopy { ctas: 133, ..good }).starts_with("ctas is 133, but"));
        assert!(message(LinkCopy { bytes: 1 << 40, repeats: 1 << 10, ..good }).starts_with("repeats is 1024, but"));
    }

    #[test]
    fn ticks_become_seconds_by_the_totals_and_the_first_round_is_dropped() {
        let round = |n| LinkRound { payload: n, release: 2 * n, round_trip: 10 * n, reserved: 0 };
        let total = LinkTimes { ticks: 2000, nanoseconds: 1000 };
        let times = round_times(total, &[round(1000), round(2), round(4)], true);
        assert!((times.payload[0] - 1e-9).abs() < 1e-20 && (times.payload[1] - 2e-9).abs() < 1e-20);
        assert_eq!(times.round_trip.len(), 2);
        assert!((times.release[1] - 4e-9).abs() < 1e-20);
        assert_eq!(round_times(total, &[round(1)], false), RoundTimes::default());
    }
}
