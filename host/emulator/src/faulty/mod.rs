//! A machine that breaks the protocol in one chosen way, for kernels that know nothing of it.
//!
//! [`Faulty`] stands between a kernel and its [`Agent`]. Every operation passes through unchanged, but the one in which
//! its [`Plant`] strikes: that one is left out, done twice, done early, or done with a wrong address, count, parity or
//! scope. So the kernels' own source is tested with faults that nobody wrote into it.

mod fault;
mod movers;
mod warpgroup;

use std::cell::Cell;

use super::agent::Agent;
use super::watch::Patience;
use crate::kernels::abi::Wait;
use crate::kernels::config::{PANEL_BUFS, PANEL_BYTES, SmemPlan};
use crate::kernels::machine::{Aborted, Mbarriers, NeighbourKernels, Settle, Watch};
use crate::kernels::shape::{GlobalAddr, Mbarrier, Parity, SmemAddr};

use fault::{Effect, Op};
pub use fault::{Fault, Plant};

/// Bytes by which announcements are wrong.
const WRONG_BYTES: u32 = 16;

/// The machine of one agent, with a fault planted in it or none.
pub struct Faulty<'a> {
    agent: &'a Agent<'a>,
    /// The operation that goes wrong, for agents that can commit the fault.
    planted: Option<(Op, Effect)>,
    after: u32,
    plan: SmemPlan,
    /// Operations of the planted kind so far.
    seen: Cell<u32>,
    /// Epoch of the call, once the kernel has read it.
    epoch: Cell<Option<u32>>,
    /// Word of the wait that was counted last.
    word: Cell<GlobalAddr>,
    /// A barrier on which an early arrival was made: the one in its place is dropped.
    owed: Cell<Option<Mbarrier>>,
    /// A consumer that has handed its buffers over or waited for one of the loader's, or a storer that has begun to
    /// store results.
    reduces: Cell<bool>,
    /// Arrivals on result barriers.
    results: Cell<u32>,
}

impl<'a> Faulty<'a> {
    /// The machine of `agent`, whose rank is in its `call`-th call, with `plant` where it concerns this agent.
    pub fn new(agent: &'a Agent<'a>, plan: SmemPlan, plant: Option<Plant>, call: usize) -> Self {
        let place = agent.place();
        let planted = plant.and_then(|p| {
            let (culprit, op, effect) = p.fault.planted_in();
            let here = p.concerns(place.rank, call) && p.cta.is_none_or(|cta| cta == place.cta);
            (here && culprit.is(place.role)).then_some((op, effect))
        });
        Self {
            agent,
            planted,
            after: plant.map_or(0, |p| p.after),
            plan,
            seen: Cell::new(0),
            epoch: Cell::new(None),
            word: Cell::new(GlobalAddr(0)),
            owed: Cell::new(None),
            reduces: Cell::new(false),
            results: Cell::new(0),
        }
    }

    /// Counts one operation; what goes wrong in it, if anything.
    fn strike(&self, op: Op) -> Option<Effect> {
        let (planted, effect) = self.planted?;
        if planted != op {
            return None;
        }
        let seen = self.seen.replace(self.seen.get() + 1);
        self.is_struck(seen, effect).then_some(effect)
    }

    /// What goes wrong in an operation of a wait, which is counted only when it succeeds.
    fn would_strike(&self, op: Op) -> Option<Effect> {
        let (planted, effect) = self.planted?;
        (planted == op && self.is_struck(self.seen.get(), effect)).then_some(effect)
    }

    fn is_struck(&self, seen: u32, effect: Effect) -> bool {
        let lasts = matches!(effect, Effect::OmitAll | Effect::PretendAll);
        seen == self.after || lasts && seen > self.after
    }

    fn name(&self, bar: Mbarrier) -> &'static str {
        self.plan.name_of(bar).0
    }

    /// Consumer and buffer of a panel.
    fn panel_at(&self, addr: SmemAddr) -> (u32, u32) {
        let idx = addr.0.saturating_sub(self.plan.panel(0, 0).0) / PANEL_BYTES;
        (idx / self.plan.panel_bufs(), idx % self.plan.panel_bufs())
    }

    fn stage_bytes(&self) -> u32 {
        self.plan.stage(1).0
    }

    /// Makes the arrival that belongs after an access to `addr` before it.
    fn arrive_early(&self, barrier: &str, addr: SmemAddr) {
        let (consumer, buf) = self.panel_at(addr);
        let bar = match barrier {
            "empty" => self.plan.empty().at(addr.0 / self.stage_bytes()),
            "partial_empty" => self.plan.partial_empty(consumer).at(buf),
            "result_full" => self.plan.result_full(consumer).at(self.results.get() % PANEL_BUFS),
            _ => self.plan.panel_full(consumer).at(buf),
        };
        self.agent.arrive(bar);
        self.owed.set(Some(bar));
    }
}

impl Mbarriers for Faulty<'_> {
    fn mbarrier_init(&self, bar: Mbarrier, arrivals: u32) {
        match self.strike(Op::Init(self.name(bar))) {
            Some(Effect::Omit) => {}
            Some(Effect::Repeat) => {
                self.agent.mbarrier_init(bar, arrivals);
                self.agent.mbarrier_init(bar, arrivals);
            }
            Some(Effect::Zero) => self.agent.mbarrier_init(bar, 0),
            Some(Effect::More) => self.agent.mbarrier_init(bar, arrivals + 1),
            Some(Effect::Less) => self.agent.mbarrier_init(bar, arrivals / 2),
            _ => self.agent.mbarrier_init(bar, arrivals),
        }
    }

    fn try_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool {
        let name = self.name(bar);
        let op = Op::Wait(name);
        let passed = match self.would_strike(op) {
            Some(Effect::Pretend | Effect::PretendAll) => true,
            Some(Effect::Flip) => self.agent.try_wait_parity(bar, Parity(parity.0 ^ 1)),
            _ => self.agent.try_wait_parity(bar, parity),
        };
        if passed {
            self.strike(op);
            self.reduces.set(self.reduces.get() || matches!(name, "result_full" | "partial_full"));
        }
        passed
    }

    fn arrive(&self, bar: Mbarrier) {
        let name = self.name(bar);
        self.reduces.set(self.reduces.get() || name == "handover");
        self.results.set(self.results.get() + u32::from(name == "result_full"));
        if self.owed.get() == Some(bar) {
            self.owed.set(None);
            return;
        }
        match self.strike(Op::Arrive(name)) {
            Some(Effect::Omit) => {}
            Some(Effect::Repeat) => {
                self.agent.arrive(bar);
                self.agent.arrive(bar);
            }
            _ => self.agent.arrive(bar),
        }
    }

    fn arrive_many(&self, bar: Mbarrier, count: u32) {
        match self.strike(Op::Arrive(self.name(bar))) {
            Some(Effect::Omit) => {}
            Some(Effect::More) => self.agent.arrive_many(bar, count + 1),
            _ => self.agent.arrive_many(bar, count),
        }
    }

    fn arrive_expect_tx(&self, bar: Mbarrier, bytes: u32) {
        match self.strike(Op::Expect(self.name(bar))) {
            Some(Effect::Less) => self.agent.arrive_expect_tx(bar, bytes - WRONG_BYTES),
            Some(Effect::More) => self.agent.arrive_expect_tx(bar, bytes + WRONG_BYTES),
            Some(Effect::Repeat) => {
                self.agent.arrive_expect_tx(bar, bytes);
                self.agent.arrive(bar);
            }
            _ => self.agent.arrive_expect_tx(bar, bytes),
        }
    }
}

impl Settle for Faulty<'_> {}

impl NeighbourKernels for Faulty<'_> {}

impl Watch for Faulty<'_> {
    type Patience = Patience;

    fn patience(&self) -> Patience {
        self.agent.patience()
    }

    fn pause(&self, patience: &mut Patience, wait: impl Fn() -> Wait) -> Result<(), Aborted> {
        self.agent.pause(patience, wait)
    }

    fn linger(&self, ns: u32) {
        self.agent.linger(ns);
    }
}
