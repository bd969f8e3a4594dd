//! The state of the emulated machine, shared by all agents.

use std::collections::{BTreeMap, VecDeque};

use super::clock::{Clock, Lane, Mark, View};
use super::emulation::RunStats;
use super::engine::{Copy, StoreGroup};
use super::launch::KernelLaunch;
use super::mbarrier::Barrier;
use super::memory::GlobalMemory;
use super::mma::MmaGroup;
use super::options::EmulatorOptions;
use super::repeats::Repeat;
use super::rng::Rng;
use super::scheduler::Policy;
use super::shadow::Shadow;
use super::trace::{EventKind, Trace};
use super::violation::{AgentRole, EmulatorError, Failure, Place, Report, Violation};
use crate::kernels::abi::Wait;
use crate::kernels::shape::{CtaPosition, Rank, Role};

/// The lanes of an agent, as offsets from its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentLane {
    Own = 0,
    StoreRead = 1,
    StoreWrite = 2,
    Mma = 3,
    Words = 4,
}

/// Whose lane it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum LaneOwner {
    Agent(AgentLane),
    Barrier { cta: usize, addr: u32 },
}

/// Whether an agent can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ready,
    Blocked,
    Ended,
}

/// What a failed look looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Barrier(u32),
    Word(u64),
}

pub(super) struct AgentState {
    pub(super) place: Place,
    pub(super) cta: usize,
    pub(super) first_lane: Lane,
    pub(super) view: View,
    /// Number of the next release: the place of this agent's own accesses in its lane.
    pub(super) now: u32,
    pub(super) status: Status,
    /// Number of the current wait, so that wake-ups for earlier ones are told apart.
    pub(super) generation: u64,
    /// Looks since the last pause, with the version that was seen.
    pub(super) looks: Vec<(Look, u64)>,
    /// The wait that it is in.
    pub(super) wait: Option<Wait>,
    /// When that wait gives up.
    pub(super) deadline_ns: u64,
    /// Whether a wait of it has given up.
    pub(super) gave_up: bool,
    pub(super) on_groups: bool,
    /// Bulk stores issued.
    pub(super) stores: u32,
    /// Times it stored flagged words.
    pub(super) words_sent: u32,
    /// Stores up to this one have been crossed by a proxy fence after their completion.
    pub(super) fenced_stores: u32,
    /// What it had to release at its latest `fence_sys`.
    pub(super) fenced: Clock,
    /// Stores known complete at the last signal.
    pub(super) signalled_stores: u32,
    pub(super) groups: Vec<StoreGroup>,
    pub(super) mma_issued: u32,
    pub(super) mma: VecDeque<MmaGroup>,
}

impl AgentState {
    pub(super) fn lane(&self, lane: AgentLane) -> Lane {
        self.first_lane + lane as Lane
    }

    /// Everything in one of its lanes up to this number is over.
    pub(super) fn learn(&mut self, lane: AgentLane, number: u32) {
        let lane = self.lane(lane);
        self.view.generic.raise(lane, number);
        self.view.bulk.raise(lane, number);
    }

    /// Whether the agent is a whole warpgroup.
    pub(super) fn is_warpgroup(&self) -> bool {
        matches!(self.place.role, AgentRole::Role(Role::Consumer(_)))
    }
}

pub(super) struct Cta {
    pub(super) launch: usize,
    pub(super) position: CtaPosition,
    pub(super) smem: Vec<u8>,
    pub(super) shadow: Shadow,
    pub(super) barriers: BTreeMap<u32, Barrier>,
    pub(super) loads_in_flight: u32,
    pub(super) agents: Vec<usize>,
    pub(super) running: u32,
    pub(super) aborted: bool,
}

/// Where a launch stands.
pub(super) struct LaunchState {
    pub(super) launch: KernelLaunch,
    pub(super) ctas_running: u32,
    pub(super) copies_in_flight: u32,
    pub(super) ctas: Vec<usize>,
    pub(super) started: bool,
    pub(super) ended: bool,
    pub(super) aborted: bool,
}

pub(super) struct World {
    pub(super) options: EmulatorOptions,
    pub(super) rng: Rng,
    pub(super) step: u64,
    pub(super) now_ns: u64,
    pub(super) memory: GlobalMemory,
    pub(super) ctas: Vec<Cta>,
    pub(super) agents: Vec<AgentState>,
    pub(super) lanes: Vec<LaneOwner>,
    pub(super) copies: Vec<Copy>,
    /// Bytes that were stored twice, until both stores have landed.
    pub(super) repeats: Vec<Repeat>,
    pub(super) launches: Vec<LaunchState>,
    pub(super) runnable: Vec<usize>,
    /// No blocked agent has an earlier deadline.
    pub(super) next_deadline_ns: u64,
    pub(super) trace: Option<Trace>,
    pub(super) stats: RunStats,
    pub(super) failure: Option<EmulatorError>,
    pub(super) scratch: [Vec<f32>; 2],
    pub(super) policy: Policy,
    /// What the kernels that have ended on each rank's stream did.
    pub(super) streams: BTreeMap<Rank, View>,
    /// Launches before this one have ended.
    pub(super) first_open: usize,
    /// Whether a launch may have to be started or ended.
    pub(super) launches_changed: bool,
}

impl World {
    pub(super) fn new(options: EmulatorOptions) -> Self {
        let mut rng = Rng::new(options.seed);
        Self {
            policy: Policy::new(&options, &mut rng),
            rng,
            step: 0,
            now_ns: 0,
            memory: GlobalMemory::default(),
            ctas: Vec::new(),
            agents: Vec::new(),
            lanes: Vec::new(),
            copies: Vec::new(),
            repeats: Vec::new(),
            launches: Vec::new(),
            runnable: Vec::new(),
            next_deadline_ns: u64::MAX,
            trace: options.trace.then(Trace::default),
            stats: RunStats::default(),
            failure: None,
            scratch: [Vec::new(), Vec::new()],
            streams: BTreeMap::new(),
            first_open: 0,
            launches_changed: false,
            options,
        }
    }

    /// One operation begins: time passes. True if another agent should go first.
    pub(super) fn tick(&mut self) -> bool {
        self.step += 1;
        self.now_ns += self.options.step_ns;
        if self.step > self.options.max_steps {
            let detail = format!("no end after {} steps", self.options.max_steps);
            self.fail(None, Failure::new(Violation::StepLimit, detail));
            return true;
        }
        self.rng.chance(self.options.schedule.yield_per_1024)
    }

    pub(super) fn agent(&self, idx: usize) -> &AgentState {
        &self.agents[idx]
    }

    pub(super) fn cta_of(&self, agent: usize) -> &Cta {
        &self.ctas[self.agents[agent].cta]
    }

    /// A mark for an access by the agent itself.
    pub(super) fn own_mark(&self, agent: usize) -> Mark {
        let a = &self.agents[agent];
        Mark { lane: a.lane(AgentLane::Own), clock: a.now, agent: agent as u32, issued: a.now }
    }

    /// What the agent publishes with a release now; its later accesses are not part of it.
    pub(super) fn release(&mut self, agent: usize) -> View {
        let a = &mut self.agents[agent];
        let view = a.view.clone();
        a.now += 1;
        let (lane, now) = (a.lane(AgentLane::Own), a.now);
        a.view.generic.raise(lane, now);
        view
    }

    pub(super) fn acquire(&mut self, agent: usize, view: &View) {
        self.agents[agent].view.join(view);
    }

    /// A lane of its own for a barrier or those of an agent.
    pub(super) fn new_lanes(&mut self, owners: &[LaneOwner]) -> Lane {
        let first = self.lanes.len() as Lane;
        self.lanes.extend_from_slice(owners);
        first
    }

    /// Whether `clock` covers the time at which the access was issued, though perhaps not its completion.
    pub(super) fn issue_known_to(&self, mark: &Mark, clock: &Clock) -> bool {
        clock.get(self.agents[mark.agent as usize].lane(AgentLane::Own)) >= mark.issued
    }

    pub(super) fn describe_mark(&self, mark: &Mark) -> String {
        let who = self.agents[mark.agent as usize].place;
        match self.lanes.get(mark.lane as usize) {
            Some(LaneOwner::Agent(AgentLane::StoreRead)) => format!("the read of bulk store {} of {who}", mark.clock),
            Some(LaneOwner::Agent(AgentLane::StoreWrite)) => format!("bulk store {} of {who}", mark.clock),
            Some(LaneOwner::Agent(AgentLane::Words)) => format!("flagged words {} of {who}", mark.clock),
            Some(LaneOwner::Agent(AgentLane::Mma)) => format!("wgmma group {} of {who}", mark.clock),
            Some(LaneOwner::Barrier { cta, addr }) => {
                let (name, index) = self.barrier_name(*cta, *addr);
                format!("a load of {who} that completes on {name}[{index}] in phase {}", mark.clock - 1)
            }
            _ => format!("an access of {who}"),
        }
    }

    pub(super) fn wake(&mut self, agent: usize, generation: u64) {
        let a = &mut self.agents[agent];
        if a.status == Status::Blocked && a.generation == generation {
            a.status = Status::Ready;
            self.runnable.push(agent);
        }
    }

    pub(super) fn wake_all(&mut self, waiters: Vec<(usize, u64)>) {
        for (agent, generation) in waiters {
            self.wake(agent, generation);
        }
    }

    /// Wakes whoever sits in a bounded wait: an abort word has been raised.
    pub(super) fn wake_bounded_waits(&mut self) {
        for agent in 0..self.agents.len() {
            if self.agents[agent].wait.is_some() {
                self.wake(agent, self.agents[agent].generation);
            }
        }
    }

    pub(super) fn block(&mut self, agent: usize) -> u64 {
        let a = &mut self.agents[agent];
        a.status = Status::Blocked;
        a.generation += 1;
        a.generation
    }

    pub(super) fn record(&mut self, agent: usize, kind: EventKind) {
        if let Some(trace) = &mut self.trace {
            trace.push(self.step, self.now_ns, self.agents[agent].place, kind);
        }
    }

    /// Records the first broken rule; what follows from it is of no interest.
    pub(super) fn fail(&mut self, agent: Option<usize>, failure: Failure) {
        if self.failure.is_none() {
            self.failure = Some(self.error(agent, failure));
        }
    }

    pub(super) fn error(&self, agent: Option<usize>, failure: Failure) -> EmulatorError {
        EmulatorError(Box::new(Report {
            violation: failure.violation,
            place: agent.map(|a| self.agents[a].place),
            barrier: failure.barrier.map(|(cta, addr)| self.barrier_report(cta, addr)),
            detail: failure.detail,
            agents: Vec::new(),
            barriers: Vec::new(),
            seed: self.options.seed,
            step: self.step,
            now_ns: self.now_ns,
        }))
    }
}
