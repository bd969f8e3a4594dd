//! How launches, CTAs and agents begin and end, and what that orders.

use std::collections::{BTreeMap, VecDeque};

use super::clock::{Clock, View};
use super::launch::KernelLaunch;
use super::shadow::Shadow;
use super::trace::EventKind;
use super::violation::{AgentRole, Failure, Place, Violation};
use super::world::{AgentLane, AgentState, Cta, LaneOwner, LaunchState, Status, World};
use crate::kernels::config::MAX_SMEM_BYTES;
use crate::kernels::shape::CtaPosition;

impl World {
    pub(super) fn enqueue(&mut self, launch: KernelLaunch) -> Result<usize, Failure> {
        let invalid = |detail: String| Err(Failure::new(Violation::InvalidLaunch, detail));
        if launch.num_ctas == 0 || launch.roles.is_empty() {
            return invalid(format!("{} CTAs with {} roles", launch.num_ctas, launch.roles.len()));
        }
        if launch.smem_bytes > MAX_SMEM_BYTES {
            return invalid(format!("{} bytes of shared memory; {MAX_SMEM_BYTES} are there", launch.smem_bytes));
        }
        for map in launch.maps.iter().flatten() {
            map.check()?;
            self.memory.find(map.base, map.extent_bytes())?;
        }
        self.launches.push(LaunchState {
            ctas_running: launch.num_ctas,
            launch,
            copies_in_flight: 0,
            ctas: Vec::new(),
            started: false,
            ended: false,
            aborted: false,
        });
        self.launches_changed = true;
        Ok(self.launches.len() - 1)
    }

    /// Ends and starts launches in stream order; returns the agents that begin.
    pub(super) fn start_launches(&mut self) -> Vec<usize> {
        let mut created = Vec::new();
        if !std::mem::take(&mut self.launches_changed) {
            return created;
        }
        for idx in self.first_open..self.launches.len() {
            let l = &self.launches[idx];
            if l.started && !l.ended && l.ctas_running == 0 && l.copies_in_flight == 0 {
                self.end_launch(idx);
            }
            let rank = self.launches[idx].launch.rank;
            let first_of_rank = !self.launches[self.first_open..idx].iter().any(|l| l.launch.rank == rank && !l.ended);
            if !self.launches[idx].started && first_of_rank {
                self.start_launch(idx, &mut created);
            }
        }
        while self.launches.get(self.first_open).is_some_and(|l| l.ended) {
            self.first_open += 1;
        }
        created
    }

    fn start_launch(&mut self, idx: usize, created: &mut Vec<usize>) {
        self.launches[idx].started = true;
        let launch = &self.launches[idx].launch;
        let (rank, num_ctas, smem_bytes) = (launch.rank, launch.num_ctas, launch.smem_bytes);
        let stream = self.streams.get(&rank).cloned().unwrap_or_default();
        for number in 0..num_ctas {
            let cta = self.ctas.len();
            self.ctas.push(Cta {
                launch: idx,
                position: CtaPosition { cta: number, num_ctas },
                // The bytes of NaNs in every element type.
                smem: vec![0xFF; smem_bytes as usize],
                shadow: Shadow::new(u64::from(smem_bytes)),
                barriers: BTreeMap::new(),
                loads_in_flight: 0,
                agents: Vec::new(),
                running: 0,
                aborted: false,
            });
            self.launches[idx].ctas.push(cta);
            created.push(self.create_agent(cta, AgentRole::Setup, &stream));
        }
    }

    fn create_agent(&mut self, cta: usize, role: AgentRole, before: &View) -> usize {
        let idx = self.agents.len();
        let kinds = [AgentLane::Own, AgentLane::StoreRead, AgentLane::StoreWrite, AgentLane::Mma, AgentLane::Words];
        let first_lane = self.new_lanes(&kinds.map(LaneOwner::Agent));
        let mut view = View::default();
        view.join_fenced(before);
        view.generic.raise(first_lane, 1);
        let c = &mut self.ctas[cta];
        let place = Place { rank: self.launches[c.launch].launch.rank, launch: c.launch, cta: c.position.cta, role };
        c.running += 1;
        c.agents.push(idx);
        self.agents.push(AgentState {
            place,
            cta,
            first_lane,
            view,
            now: 1,
            status: Status::Ready,
            generation: 0,
            looks: Vec::new(),
            wait: None,
            deadline_ns: u64::MAX,
            gave_up: false,
            on_groups: false,
            stores: 0,
            words_sent: 0,
            fenced_stores: 0,
            fenced: Clock::default(),
            signalled_stores: 0,
            groups: Vec::new(),
            mma_issued: 0,
            mma: VecDeque::new(),
        });
        self.runnable.push(idx);
        idx
    }

    /// An agent's code has returned; returns the agents that begin now.
    pub(super) fn agent_ended(&mut self, idx: usize, aborted: bool) -> Result<Vec<usize>, Failure> {
        self.agents[idx].status = Status::Ended;
        self.record(idx, EventKind::Ended { aborted });
        let cta = self.agents[idx].cta;
        let launch = self.ctas[cta].launch;
        self.ctas[cta].aborted |= aborted;
        self.launches[launch].aborted |= aborted;
        if !aborted {
            self.check_exit(idx)?;
        }
        self.ctas[cta].running -= 1;
        if self.ctas[cta].running > 0 {
            return Ok(Vec::new());
        }
        match self.agents[idx].place.role {
            AgentRole::Setup => {
                let before = self.agents[idx].view.clone();
                let roles = self.launches[launch].launch.roles.clone();
                Ok(roles.into_iter().map(|role| self.create_agent(cta, AgentRole::Role(role), &before)).collect())
            }
            AgentRole::Role(_) => {
                let mut before = View::default();
                self.ctas[cta].agents.iter().for_each(|a| before.join(&self.agents[*a].view));
                Ok(vec![self.create_agent(cta, AgentRole::Leave, &before)])
            }
            AgentRole::Leave => {
                self.launches[launch].ctas_running -= 1;
                self.launches_changed = true;
                if self.ctas[cta].loads_in_flight > 0 && !self.ctas[cta].aborted {
                    let detail = format!("the CTA ends with {} loads in flight", self.ctas[cta].loads_in_flight);
                    return Err(Failure::new(Violation::ExitWithCopyInFlight, detail));
                }
                self.check_barriers_at_exit(cta)?;
                Ok(Vec::new())
            }
        }
    }

    fn check_exit(&self, idx: usize) -> Result<(), Failure> {
        let a = &self.agents[idx];
        let unread = a.stores - a.view.generic.get(a.lane(AgentLane::StoreRead));
        if unread > 0 {
            let detail = format!("ends when {unread} of its bulk stores are not known to have read shared memory");
            return Err(Failure::new(Violation::ExitWithCopyInFlight, detail));
        }
        if !a.mma.is_empty() {
            let detail = format!("ends with {} wgmma groups running", a.mma.len());
            return Err(Failure::new(Violation::AccumulatorInFlight, detail));
        }
        Ok(())
    }

    /// Every arrival on a barrier belongs to a use of what it guards: one that is left over, or missing, is a use that went
    /// wrong without anybody to notice.
    fn check_barriers_at_exit(&self, cta: usize) -> Result<(), Failure> {
        let c = &self.ctas[cta];
        match c.barriers.iter().find(|(_, b)| b.pending != b.arrivals || b.tx != 0) {
            Some((&addr, _)) if !c.aborted => {
                Err(Failure::at_barrier(Violation::ExitInMidPhase, cta, addr, "the CTA ends in the middle of a phase"))
            }
            _ => Ok(()),
        }
    }

    /// A kernel's end orders everything that it did, copies included, before the next kernel of its stream.
    fn end_launch(&mut self, idx: usize) {
        let rank = self.launches[idx].launch.rank;
        self.launches[idx].ended = true;
        let mut view = self.streams.remove(&rank).unwrap_or_default();
        for cta in std::mem::take(&mut self.launches[idx].ctas) {
            for agent in std::mem::take(&mut self.ctas[cta].agents) {
                let a = &mut self.agents[agent];
                a.learn(AgentLane::StoreRead, a.stores);
                a.learn(AgentLane::StoreWrite, a.stores);
                a.learn(AgentLane::Mma, a.mma_issued);
                view.join_fenced(&a.view);
                a.view = View::default();
                a.groups = Vec::new();
                a.mma.clear();
            }
            let c = &mut self.ctas[cta];
            c.barriers.values().for_each(|b| view.generic.raise(b.lane, b.phase as u32 + 1));
            c.smem = Vec::new();
            c.shadow = Shadow::new(0);
        }
        let fenced = view.clone();
        view.join_fenced(&fenced);
        self.streams.insert(rank, view);
    }

    /// Every launch has ended and the host has waited for that: everything so far is ordered before what follows.
    pub(super) fn settle(&mut self) {
        self.memory.settle();
        self.streams.clear();
        self.next_deadline_ns = u64::MAX;
        self.ctas.clear();
        self.agents.clear();
        self.lanes.clear();
        self.runnable.clear();
        self.policy.forget_agents();
    }
}
