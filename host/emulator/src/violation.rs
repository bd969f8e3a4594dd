//! The rules that the emulator enforces, and the report of a broken one.

use std::fmt;
use std::ops::Deref;

use crate::kernels::abi::{Wait, WaitKind};
use crate::kernels::shape::{Rank, Role};

macro_rules! violations {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// A rule of the machine that a kernel can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Violation {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Violation {
            /// Every violation.
            pub const ALL: &[Violation] = &[$(Violation::$variant,)+];

            /// Its stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Violation::$variant => $name,)+
                }
            }
        }
    };
}

violations! {
    /// An address range lies outside every allocation, or outside the CTA's shared memory.
    OutOfBounds => "out-of-bounds",
    /// An address or a size breaks the alignment of the operation.
    Misaligned => "misaligned",
    /// Global memory is read that nobody wrote.
    ReadOfUnwrittenGlobal => "read-of-unwritten-global",
    /// Shared memory is read that nothing filled, or whose filling copy or write is not ordered before the read.
    ReadOfUnfilledShared => "read-of-unfilled-shared",
    /// Shared memory is written while a copy, a wgmma group or another agent may still be using it.
    WriteIntoStageInUse => "write-into-stage-in-use",
    /// A copy or a panel overlaps an mbarrier.
    BarrierOverwritten => "barrier-overwritten",
    /// Two accesses to global memory, one of them a write, are not ordered.
    Race => "race",
    /// A signal was released before the data that it announces were written.
    SignalBeforeData => "signal-before-data",
    /// A peer's memory was written again before its reader had returned the credit.
    SlotOverwrittenBeforeCredit => "slot-overwritten-before-credit",
    /// No proxy fence between a signal and the copy engine's accesses that it orders.
    MissingProxyFence => "missing-proxy-fence",
    /// A word that several ranks use is accessed at gpu scope.
    ScopeTooNarrow => "scope-too-narrow",
    /// More arrivals on an mbarrier than its phase has pending.
    ArrivalOverflow => "arrival-overflow",
    /// More bytes complete on an mbarrier than its phase was told to expect.
    ExpectTxTooSmall => "expect-tx-too-small",
    /// The transaction count of an mbarrier leaves its range.
    TxCountOverflow => "tx-count-overflow",
    /// A wait names by its parity a phase that ended at least two phases ago.
    ParityTwoPhasesBehind => "parity-two-phases-behind",
    /// An mbarrier is used before its initialisation.
    UninitialisedBarrier => "uninitialised-barrier",
    /// An mbarrier is initialised twice.
    DoubleInit => "double-init",
    /// An mbarrier is initialised with an arrival count that PTX does not allow.
    InvalidArrivalCount => "invalid-arrival-count",
    /// An accumulator is read while wgmma groups still write it, or a role ends with such groups running.
    AccumulatorInFlight => "accumulator-in-flight",
    /// A role or a CTA ends while copies still use its shared memory.
    ExitWithCopyInFlight => "exit-with-copy-in-flight",
    /// A CTA ends with an mbarrier in the middle of a phase: an arrival or a byte is missing, or is one too many.
    ExitInMidPhase => "exit-in-mid-phase",
    /// A thread's operation is called by a warpgroup, or the reverse.
    WrongRole => "wrong-role",
    /// A copy uses a tensor map that was not given, or a map breaks a rule of tensor maps.
    InvalidTensorMap => "invalid-tensor-map",
    /// The launch itself cannot work.
    InvalidLaunch => "invalid-launch",
    /// Every agent waits and nothing is in flight.
    Deadlock => "deadlock",
    /// The run took more steps than the options allow.
    StepLimit => "step-limit",
    /// Kernel code panicked.
    KernelPanicked => "kernel-panicked",
    /// The emulation was used again after an error ended it.
    AlreadyFailed => "already-failed",
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which agent of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentRole {
    /// The thread that initialises barriers, before the roles begin.
    Setup,
    /// A role of the kernel.
    Role(Role),
    /// The thread that leaves the kernel, after the roles have ended.
    Leave,
}

impl fmt::Display for AgentRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentRole::Setup => f.write_str("setup"),
            AgentRole::Role(Role::Producer) => f.write_str("producer"),
            AgentRole::Role(Role::Storer) => f.write_str("storer"),
            AgentRole::Role(Role::Loader) => f.write_str("loader"),
            AgentRole::Role(Role::Consumer(idx)) => write!(f, "consumer {idx}"),
            AgentRole::Leave => f.write_str("leave"),
        }
    }
}

/// Who an event or a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Rank.
    pub rank: Rank,
    /// Launch, numbered from 0 over the whole emulation.
    pub launch: usize,
    /// CTA of the launch's grid.
    pub cta: u32,
    /// Agent of the CTA.
    pub role: AgentRole,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} launch {} CTA {} {}", self.rank.0, self.launch, self.cta, self.role)
    }
}

/// An mbarrier's state in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierReport {
    /// Rank, launch and CTA in whose shared memory it lies.
    pub cta: (Rank, usize, u32),
    /// Name from the shared-memory plan.
    pub name: &'static str,
    /// Index from the shared-memory plan.
    pub index: u32,
    /// The running phase, counted from 0; `None` if the barrier is not initialised.
    pub phase: Option<u64>,
    /// Arrivals the running phase still waits for.
    pub pending: u32,
    /// Arrivals that complete a phase.
    pub arrivals: u32,
    /// Bytes the running phase still waits for.
    pub tx_bytes: u32,
    /// Copies in flight that will complete on it.
    pub copies_in_flight: u32,
}

impl fmt::Display for BarrierReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "barrier {}[{}]", self.name, self.index)?;
        let Some(phase) = self.phase else {
            return f.write_str(", not initialised");
        };
        write!(f, ", phase {phase}: {} of {} arrivals pending", self.pending, self.arrivals)?;
        write!(f, ", {} bytes still expected, ", self.tx_bytes)?;
        match self.copies_in_flight {
            0 => f.write_str("no copy in flight"),
            n => write!(f, "{n} copies in flight"),
        }
    }
}

/// What one agent was doing when the run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    /// The agent.
    pub place: Place,
    /// The wait that it announced, if it was in one.
    pub wait: Option<Wait>,
    /// The mbarrier it last looked at in that wait.
    pub barrier: Option<BarrierReport>,
    /// What it waits for, in words, where no barrier is involved.
    pub note: String,
}

impl fmt::Display for AgentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(wait) = &self.wait {
            let awaited = match wait.kind {
                WaitKind::Signal | WaitKind::Credit | WaitKind::Staged => "epoch",
                WaitKind::Share => "word",
                _ => "parity",
            };
            write!(f, "waits for {:?} {}, {awaited} {}, seen {}", wait.kind, wait.index, wait.awaited, wait.seen)?;
        }
        if let Some(barrier) = &self.barrier {
            write!(f, " ({barrier})")?;
        }
        f.write_str(&self.note)
    }
}

/// Everything that is known about the end of a run that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The broken rule.
    pub violation: Violation,
    /// Who broke it; `None` when the host did, or when all agents did together.
    pub place: Option<Place>,
    /// The barrier it is about.
    pub barrier: Option<BarrierReport>,
    /// What happened, with the numbers.
    pub detail: String,
    /// For a deadlock: every agent that had not ended.
    pub agents: Vec<AgentReport>,
    /// For a deadlock: every barrier in the middle of a phase.
    pub barriers: Vec<BarrierReport>,
    /// Seed that replays the run.
    pub seed: u64,
    /// Step at which it ended.
    pub step: u64,
    /// Virtual time at which it ended, in nanoseconds.
    pub now_ns: u64,
}

/// A rule of the machine was broken: the run is over, its results are void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatorError(pub Box<Report>);

impl Deref for EmulatorError {
    type Target = Report;

    fn deref(&self) -> &Report {
        &self.0
    }
}

impl std::error::Error for EmulatorError {}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.violation)?;
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.detail)?;
        if let Some(barrier) = &self.barrier {
            write!(f, " ({barrier})")?;
        }
        write!(f, " [seed {}, step {}, {} ns]", self.seed, self.step, self.now_ns)?;
        for agent in &self.agents {
            write!(f, "\n  {agent}")?;
        }
        for barrier in &self.barriers {
            let (rank, launch, cta) = barrier.cta;
            write!(f, "\n  rank {} launch {launch} CTA {cta}: {barrier}", rank.0)?;
        }
        Ok(())
    }
}

/// A broken rule, before it is known who broke it and when.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) violation: Violation,
    /// CTA and shared-memory address of the barrier it is about.
    pub(super) barrier: Option<(usize, u32)>,
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(violation: Violation, detail: impl Into<String>) -> Self {
        Self { violation, barrier: None, detail: detail.into() }
    }

    pub(super) fn at_barrier(violation: Violation, cta: usize, addr: u32, detail: impl Into<String>) -> Self {
        Self { violation, barrier: Some((cta, addr)), detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_kebab_case() {
        let mut names: Vec<_> = Violation::ALL.iter().map(|v| v.name()).collect();
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Violation::ALL.len());
    }
}
