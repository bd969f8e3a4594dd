//! What a user may choose about a run.

use crate::kernels::shape::Rank;

/// Choices for an emulation. The same options and the same calls give the same run, step by step.
#[derive(Clone, Debug)]
pub struct EmulatorOptions {
    /// Seed of every choice.
    pub seed: u64,
    /// How agents and copies take turns.
    pub schedule: Schedule,
    /// Ranks that are held back.
    pub delays: Vec<(Rank, Delay)>,
    /// Record events for [`Trace`](super::Trace).
    pub trace: bool,
    /// When every agent waits and one of them has a deadline: let virtual time jump to it, so that the kernels' own
    /// watchdog ends the run, instead of reporting the deadlock at once.
    pub deadlock_is_fault: bool,
    /// Virtual nanoseconds that one step takes.
    pub step_ns: u64,
    /// Steps after which a run is given up.
    pub max_steps: u64,
    /// Bytes of memory that the ranks of a world have together: what needs more is refused.
    pub memory_bytes: u64,
}

impl EmulatorOptions {
    /// The defaults, with this seed.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            seed,
            schedule: Schedule::default(),
            delays: Vec::new(),
            trace: false,
            deadlock_is_fault: false,
            step_ns: 10,
            max_steps: 100_000_000,
            memory_bytes: 16 << 30,
        }
    }
}

impl Default for EmulatorOptions {
    fn default() -> Self {
        Self::with_seed(0)
    }
}

/// How agents and copies take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How often, in 1024, an operation lets another agent go first.
    pub yield_per_1024: u32,
    /// Who goes next.
    pub turns: Turns,
    /// When copies proceed.
    pub copies: Copies,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { yield_per_1024: 1024, turns: Turns::BySeed, copies: Copies::BySeed }
    }
}

/// Who goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// One of the others, drawn from the seed.
    BySeed,
    /// Any agent that can run, with equal chance.
    Uniform,
    /// Mostly the agent that ran last, as long as it can: long runs of one agent.
    Sticky,
    /// The one with the highest priority; priorities are drawn, and redrawn now and then. Finds orders that need one agent
    /// to be much faster than the others.
    Priority,
}

/// When copies proceed, next to the agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// A chance drawn from the seed, from eager to lazy.
    BySeed,
    /// So often in 1024 steps.
    Per1024(u32),
    /// Only when no agent can run.
    Last,
}

/// How a rank is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Its agents run so often in 1024 of the steps in which others can run.
    Seldom(u32),
    /// Its agents run only when no other can, and no copy is in flight.
    UntilOthersBlock,
    /// Its agents run from this virtual time on, in nanoseconds. Where nothing else can happen before, time passes.
    From(u64),
}
