//! Who goes next.

use super::emulation::Turn;
use super::options::{Copies, Delay, EmulatorOptions, Turns};
use super::rng::Rng;
use super::violation::{AgentReport, EmulatorError, Failure, Violation};
use super::world::{Look, Status, World};

/// The choices of one run, once the seed has settled those that it is to settle.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    turns: Turns,
    copies_per_1024: u32,
    last: usize,
    priorities: Vec<u32>,
}

impl Policy {
    pub(super) fn new(options: &EmulatorOptions, rng: &mut Rng) -> Self {
        let turns = match options.schedule.turns {
            Turns::BySeed => [Turns::Uniform, Turns::Sticky, Turns::Priority][rng.below(3)],
            turns => turns,
        };
        let copies_per_1024 = match options.schedule.copies {
            Copies::BySeed => [0, 16, 128, 512, 900][rng.below(5)],
            Copies::Per1024(chance) => chance,
            Copies::Last => 0,
        };
        Self { turns, copies_per_1024, last: usize::MAX, priorities: Vec::new() }
    }
}

impl Policy {
    /// Agents are numbered afresh in the next run.
    pub(super) fn forget_agents(&mut self) {
        self.priorities.clear();
        self.last = usize::MAX;
    }
}

impl World {
    pub(super) fn next_turn(&mut self) -> Turn {
        self.fire_deadlines();
        if self.runnable.is_empty() && self.copies.is_empty() {
            return self.idle_turn();
        }
        if self.runnable.is_empty() || (!self.copies.is_empty() && self.rng.chance(self.policy.copies_per_1024)) {
            return Turn::Copy(self.rng.below(self.copies.len()));
        }
        match self.pick_agent() {
            Some(at) => {
                self.policy.last = self.runnable[at];
                Turn::Agent(at)
            }
            // Only agents of held-back ranks can run: copies go before them.
            None if !self.copies.is_empty() => Turn::Copy(self.rng.below(self.copies.len())),
            None => {
                self.let_time_pass();
                Turn::Again
            }
        }
    }

    fn idle_turn(&mut self) -> Turn {
        if self.launches[self.first_open..].iter().all(|l| l.ended) {
            Turn::AllEnded
        } else if self.launches_changed || (self.options.deadlock_is_fault && self.jump_to_deadline()) {
            Turn::Again
        } else {
            Turn::Deadlock
        }
    }

    fn delay_of(&self, agent: usize) -> Option<Delay> {
        let rank = self.agents[agent].place.rank;
        self.options.delays.iter().find(|(delayed, _)| *delayed == rank).map(|(_, delay)| *delay)
    }

    /// Whether the agent's rank comes later, and when.
    fn comes_at(&self, agent: usize) -> Option<u64> {
        match self.delay_of(agent) {
            Some(Delay::From(ns)) if self.now_ns < ns => Some(ns),
            _ => None,
        }
    }

    /// Nobody can run but agents of ranks that come later: time passes until the first of them comes, or a wait of another
    /// is over.
    fn let_time_pass(&mut self) {
        let next = self.runnable.iter().filter_map(|agent| self.comes_at(*agent)).min();
        self.now_ns = self.now_ns.max(next.unwrap_or(0).min(self.next_deadline_ns));
    }

    /// Place in the list of runnable agents of the one that goes next; `None` to let copies go first, or time pass.
    fn pick_agent(&mut self) -> Option<usize> {
        if self.options.delays.is_empty() {
            return Some(self.pick_among(None));
        }
        let here: Vec<usize> =
            (0..self.runnable.len()).filter(|at| self.comes_at(self.runnable[*at]).is_none()).collect();
        let (prompt, delayed): (Vec<usize>, Vec<usize>) =
            here.into_iter().partition(|at| matches!(self.delay_of(self.runnable[*at]), None | Some(Delay::From(_))));
        if prompt.is_empty() && (delayed.is_empty() || !self.copies.is_empty()) {
            return None;
        }
        if let Some(&at) = delayed.get(self.rng.below(delayed.len())) {
            let seldom = matches!(self.delay_of(self.runnable[at]), Some(Delay::Seldom(n)) if self.rng.chance(n));
            if prompt.is_empty() || seldom {
                return Some(at);
            }
        }
        Some(self.pick_among(Some(&prompt)))
    }

    /// Picks by policy, among these places or all.
    fn pick_among(&mut self, places: Option<&[usize]>) -> usize {
        let count = places.map_or(self.runnable.len(), <[usize]>::len);
        let place = |i: usize| places.map_or(i, |p| p[i]);
        match self.policy.turns {
            Turns::Sticky if !self.rng.chance(128) => {
                let last = (0..count).find(|i| self.runnable[place(*i)] == self.policy.last);
                last.map(place).unwrap_or_else(|| place(self.rng.below(count)))
            }
            Turns::Priority => {
                while self.policy.priorities.len() < self.agents.len() {
                    let priority = self.rng.next() as u32;
                    self.policy.priorities.push(priority);
                }
                if self.rng.chance(16) {
                    let agent = self.rng.below(self.agents.len());
                    self.policy.priorities[agent] = self.rng.next() as u32;
                }
                let best = (0..count).max_by_key(|i| self.policy.priorities[self.runnable[place(*i)]]);
                place(best.unwrap_or(0))
            }
            _ => place(self.rng.below(count)),
        }
    }

    /// The report of a state in which nothing can happen any more.
    pub(super) fn deadlock(&self) -> EmulatorError {
        let waiting: Vec<usize> = (0..self.agents.len()).filter(|a| self.agents[*a].status != Status::Ended).collect();
        let detail = format!("all {} agents wait and no copy is in flight", waiting.len());
        let mut error = self.error(None, Failure::new(Violation::Deadlock, detail));
        error.0.agents = waiting.iter().map(|agent| self.agent_report(*agent)).collect();
        for cta in 0..self.ctas.len() {
            for (addr, barrier) in &self.ctas[cta].barriers {
                if barrier.pending != barrier.arrivals || barrier.tx != 0 {
                    error.0.barriers.push(self.barrier_report(cta, *addr));
                }
            }
        }
        error
    }

    fn agent_report(&self, agent: usize) -> AgentReport {
        let a = &self.agents[agent];
        let barrier = a.looks.iter().find_map(|(look, _)| match look {
            Look::Barrier(addr) => Some(self.barrier_report(a.cta, *addr)),
            Look::Word(_) => None,
        });
        let words = a.looks.iter().filter_map(|(look, _)| match look {
            Look::Word(addr) => {
                Some(format!(" (word {})", self.memory.describe(crate::kernels::shape::GlobalAddr(*addr))))
            }
            Look::Barrier(_) => None,
        });
        let note = if a.on_groups { "waits for its bulk stores".to_string() } else { words.collect() };
        AgentReport { place: a.place, wait: a.wait, barrier, note }
    }
}
