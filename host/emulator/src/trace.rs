//! What happened, event by event, in virtual time.

use std::fmt;

use super::violation::Place;
use crate::kernels::abi::{Wait, WaitKind};

/// A barrier by its name in the shared-memory plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BarrierId {
    /// Name.
    pub name: &'static str,
    /// Index.
    pub index: u32,
}

impl fmt::Display for BarrierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.name, self.index)
    }
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named as the operations' arguments")]
pub enum EventKind {
    /// A barrier was initialised.
    BarrierInit { bar: BarrierId, arrivals: u32 },
    /// Arrivals, and bytes announced with them.
    Arrive { bar: BarrierId, count: u32, bytes: u32 },
    /// The last arrival or the last byte of a phase.
    PhaseComplete { bar: BarrierId, phase: u64 },
    /// A wait on a barrier found its phase complete.
    Passed { bar: BarrierId, parity: u32 },
    /// A load was issued.
    LoadIssued { dst: u32, bytes: u32, bar: BarrierId },
    /// A load's bytes are in shared memory.
    LoadLanded { dst: u32, bytes: u32, bar: BarrierId },
    /// A bulk store was issued.
    StoreIssued { src: u32, bytes: u32, number: u32 },
    /// A bulk store has read its source.
    StoreRead { src: u32, number: u32 },
    /// A bulk store has written its destination.
    StoreWritten { number: u32 },
    /// A wgmma group was issued.
    MmaIssued { number: u32, a: u32, b: u32 },
    /// A wgmma group was waited for.
    MmaDone { number: u32 },
    /// A word was released.
    Signal { addr: u64, value: u32 },
    /// An agent blocks.
    WaitBegin { wait: Wait },
    /// It goes on.
    WaitEnd { kind: WaitKind, index: u32 },
    /// A deadline passed and was reported.
    Fault { wait: Wait },
    /// An agent ended.
    Ended { aborted: bool },
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BarrierInit { bar, arrivals } => write!(f, "init {bar} for {arrivals} arrivals"),
            Self::Arrive { bar, count, bytes: 0 } => write!(f, "arrive {bar} x{count}"),
            Self::Arrive { bar, count, bytes } => write!(f, "arrive {bar} x{count}, expect {bytes} bytes"),
            Self::PhaseComplete { bar, phase } => write!(f, "{bar} completes phase {phase}"),
            Self::Passed { bar, parity } => write!(f, "passes {bar} with parity {parity}"),
            Self::LoadIssued { dst, bytes, bar } => write!(f, "load {bytes} bytes to {dst}, completing on {bar}"),
            Self::LoadLanded { dst, bytes, bar } => write!(f, "{bytes} bytes landed at {dst}, complete_tx on {bar}"),
            Self::StoreIssued { src, bytes, number } => write!(f, "store {number}: {bytes} bytes from {src}"),
            Self::StoreRead { src, number } => write!(f, "store {number} has read {src}"),
            Self::StoreWritten { number } => write!(f, "store {number} is written"),
            Self::MmaIssued { number, a, b } => write!(f, "wgmma group {number} over {a} and {b}"),
            Self::MmaDone { number } => write!(f, "wgmma group {number} is done"),
            Self::Signal { addr, value } => write!(f, "signal {addr:#x} = {value}"),
            Self::WaitBegin { wait } => {
                write!(f, "waits for {:?} {}, awaited {}, seen {}", wait.kind, wait.index, wait.awaited, wait.seen)
            }
            Self::WaitEnd { kind, index } => write!(f, "looks again at {kind:?} {index}"),
            Self::Fault { wait } => write!(f, "gives up on {:?} {}", wait.kind, wait.index),
            Self::Ended { aborted: false } => f.write_str("ends"),
            Self::Ended { aborted: true } => f.write_str("ends, aborted"),
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Step of the run.
    pub step: u64,
    /// Virtual time.
    pub now_ns: u64,
    /// Who did it, or on whose behalf the copy engine did it.
    pub place: Place,
    /// What.
    pub kind: EventKind,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} ns  {}: {}", self.now_ns, self.place, self.kind)
    }
}

/// The events of a run, in order. Displays as one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
}

impl Trace {
    pub(super) fn push(&mut self, step: u64, now_ns: u64, place: Place, kind: EventKind) {
        self.events.push(Event { step, now_ns, place, kind });
    }

    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}
