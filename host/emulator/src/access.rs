//! Accesses to memory with all their checks: shared memory of a CTA, and global memory as one agent sees it.

use std::ops::Range;

use super::clock::{Clock, Mark};
use super::memory::Allocation;
use super::shadow::{Conflict, Fill};
use super::violation::{BarrierReport, Failure, Violation};
use super::world::{AgentLane, LaneOwner, World};
use crate::kernels::shape::{GlobalAddr, Mbarrier, SmemAddr};

/// How an agent touches global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    /// Loads and stores of its own threads.
    Generic,
    /// The copy engine.
    Bulk,
}

impl World {
    /// Checks that data may lie at the range: inside shared memory, aligned, and clear of every barrier.
    pub(super) fn smem_range(&self, cta: usize, addr: SmemAddr, len: u32, align: u32) -> Result<Range<u64>, Failure> {
        let c = &self.ctas[cta];
        if !addr.0.is_multiple_of(align) {
            let detail = format!("shared address {} is not a multiple of {align}", addr.0);
            return Err(Failure::new(Violation::Misaligned, detail));
        }
        let range = u64::from(addr.0)..u64::from(addr.0) + u64::from(len);
        if range.end > c.smem.len() as u64 {
            let detail = format!("{len} bytes at shared address {} exceed the CTA's {} bytes", addr.0, c.smem.len());
            return Err(Failure::new(Violation::OutOfBounds, detail));
        }
        let from = addr.0.saturating_sub(Mbarrier::BYTES - 1);
        if let Some((&at, _)) = c.barriers.range(from..range.end as u32).next() {
            let detail = format!("{len} bytes at shared address {} overlap a barrier", addr.0);
            return Err(Failure::at_barrier(Violation::BarrierOverwritten, cta, at, detail));
        }
        Ok(range)
    }

    /// Records a read of shared memory. With `lenient`, only a panel whose first byte nobody wrote is unfilled: rows past
    /// the last one that exists are never filled, and never stored.
    pub(super) fn smem_read(
        &mut self,
        cta: usize,
        range: Range<u64>,
        mark: Mark,
        lenient: bool,
    ) -> Result<(), Failure> {
        let clock = &self.agents[mark.agent as usize].view.generic;
        let shadow = &mut self.ctas[cta].shadow;
        let empty = lenient.then(|| shadow.first_empty(range.start..range.start + 1)).flatten();
        let result = match empty {
            Some(at) => Err(Conflict::ReadEmpty { at }),
            None => shadow.read(range.clone(), mark, clock, lenient),
        };
        result.map_err(|conflict| self.smem_failure(cta, range, conflict))
    }

    pub(super) fn smem_write(&mut self, cta: usize, range: Range<u64>, mark: Mark) -> Result<(), Failure> {
        let clock = &self.agents[mark.agent as usize].view.generic;
        let result = self.ctas[cta].shadow.write(range.clone(), mark, clock, |_| false);
        result.map(drop).map_err(|conflict| self.smem_failure(cta, range, conflict))
    }

    fn smem_failure(&self, cta: usize, range: Range<u64>, conflict: Conflict) -> Failure {
        let (start, end) = (range.start, range.end);
        let (violation, at, other, detail) = match conflict {
            Conflict::ReadEmpty { at } => {
                let detail = format!("reads shared bytes {start}..{end}, but nothing ever filled byte {at}");
                return Failure::new(Violation::ReadOfUnfilledShared, detail);
            }
            Conflict::ReadUnordered { at, write, .. } => {
                (Violation::ReadOfUnfilledShared, at, write, "reads shared bytes")
            }
            Conflict::WriteUnorderedWrite { at, write } => {
                (Violation::WriteIntoStageInUse, at, write, "writes shared bytes")
            }
            Conflict::WriteUnorderedRead { at, read } => {
                (Violation::WriteIntoStageInUse, at, read, "writes shared bytes")
            }
        };
        let detail = format!("{detail} {start}..{end}, not ordered after {} at byte {at}", self.describe_mark(&other));
        Failure { violation, barrier: self.barrier_of(&other, cta), detail }
    }

    /// The barrier that the access completes on, if it is a load.
    fn barrier_of(&self, mark: &Mark, in_cta: usize) -> Option<(usize, u32)> {
        match self.lanes.get(mark.lane as usize) {
            Some(&LaneOwner::Barrier { cta, addr }) if cta == in_cta => Some((cta, addr)),
            _ => None,
        }
    }

    /// Records a read of global memory by the agent of `mark`.
    pub(super) fn global_read(&mut self, addr: GlobalAddr, len: u64, mark: Mark, proxy: Proxy) -> Result<(), Failure> {
        let (idx, range) = self.memory.find(addr, len)?;
        let view = &self.agents[mark.agent as usize].view;
        let clock = match proxy {
            Proxy::Generic => &view.generic,
            Proxy::Bulk => &view.bulk,
        };
        let result = self.memory.allocation(idx).shadow.read(range.clone(), mark, clock, false);
        result.map_err(|conflict| self.global_failure(idx, range, mark, proxy, conflict))
    }

    /// Records a write of global memory by the agent of `mark`.
    pub(super) fn global_write(&mut self, addr: GlobalAddr, len: u64, mark: Mark, proxy: Proxy) -> Result<(), Failure> {
        let (idx, range) = self.memory.find(addr, len)?;
        let view = &self.agents[mark.agent as usize].view;
        let clock = match proxy {
            Proxy::Generic => &view.generic,
            Proxy::Bulk => &view.bulk,
        };
        let result = self.memory.allocation(idx).shadow.write(range.clone(), mark, clock, |write| {
            // Another bulk store of the same agent.
            proxy == Proxy::Bulk && (write.agent, write.lane) == (mark.agent, mark.lane)
        });
        let repeats = result.map_err(|conflict| self.global_failure(idx, range.clone(), mark, proxy, conflict))?;
        repeats
            .into_iter()
            .try_for_each(|of| self.note_repeat(mark, addr.0 + (of.start - range.start), of.end - of.start))
    }

    fn global_failure(&mut self, idx: usize, range: Range<u64>, by: Mark, proxy: Proxy, why: Conflict) -> Failure {
        let Allocation { name, rank, .. } = self.memory.allocation(idx);
        let what = format!("bytes {}..{} of {name} (rank {})", range.start, range.end, rank.0);
        let clock = &self.agents[by.agent as usize].view.generic;
        let rank_of = |mark: &Mark| self.agents[mark.agent as usize].place.rank;
        let (violation, other, detail) = match why {
            Conflict::ReadEmpty { at } => {
                let detail = format!("reads {what}, but nobody wrote byte {at}");
                return Failure::new(Violation::ReadOfUnwrittenGlobal, detail);
            }
            Conflict::ReadUnordered { write, before, .. } => {
                let violation = self.read_violation(&by, &write, before, proxy, clock);
                let reason = match violation {
                    Violation::MissingProxyFence => "no proxy fence between its signal and this copy",
                    Violation::SignalBeforeData => "signalled before the store was complete",
                    Violation::SlotOverwrittenBeforeCredit => "it replaced data that this read had a right to",
                    _ => "no signal orders it before this read",
                };
                (violation, write, format!("reads {what}; {reason}: "))
            }
            Conflict::WriteUnorderedWrite { write: other, .. } | Conflict::WriteUnorderedRead { read: other, .. }
                if proxy == Proxy::Bulk && other.known_to(clock) =>
            {
                let reason = "no proxy fence between its signal and this copy";
                (Violation::MissingProxyFence, other, format!("writes {what}; {reason}: "))
            }
            Conflict::WriteUnorderedWrite { write, .. } => {
                (Violation::Race, write, format!("writes {what}, not ordered after "))
            }
            Conflict::WriteUnorderedRead { read, .. } => {
                let foreign = rank_of(&read) != rank_of(&by);
                let violation = if foreign { Violation::SlotOverwrittenBeforeCredit } else { Violation::Race };
                (violation, read, format!("writes {what}, not ordered after the read by "))
            }
        };
        Failure::new(violation, detail + &self.describe_mark(&other))
    }

    fn read_violation(&self, by: &Mark, write: &Mark, before: Fill, proxy: Proxy, clock: &Clock) -> Violation {
        let rank_of = |mark: &Mark| self.agents[mark.agent as usize].place.rank;
        let had_older_data = matches!(before, Fill::By(older) if older.known_to(clock));
        if proxy == Proxy::Bulk && write.known_to(clock) {
            Violation::MissingProxyFence
        } else if self.issue_known_to(write, clock) {
            Violation::SignalBeforeData
        } else if had_older_data && rank_of(write) != rank_of(by) {
            Violation::SlotOverwrittenBeforeCredit
        } else {
            Violation::Race
        }
    }

    /// A mark for the next bulk store, reading or writing.
    pub(super) fn store_mark(&self, agent: usize, lane: AgentLane) -> Mark {
        let a = &self.agents[agent];
        Mark { lane: a.lane(lane), clock: a.stores + 1, agent: agent as u32, issued: a.now }
    }

    pub(super) fn barrier_name(&self, cta: usize, addr: u32) -> (&'static str, u32) {
        let plan = self.launches[self.ctas[cta].launch].launch.smem_plan;
        plan.name_of(Mbarrier(SmemAddr(addr)))
    }

    pub(super) fn barrier_report(&self, cta: usize, addr: u32) -> BarrierReport {
        let c = &self.ctas[cta];
        let (name, index) = self.barrier_name(cta, addr);
        let barrier = c.barriers.get(&addr);
        BarrierReport {
            cta: (self.launches[c.launch].launch.rank, c.launch, c.position.cta),
            name,
            index,
            phase: barrier.map(|b| b.phase),
            pending: barrier.map_or(0, |b| b.pending),
            arrivals: barrier.map_or(0, |b| b.arrivals),
            tx_bytes: barrier.map_or(0, |b| b.tx),
            copies_in_flight: self.copies.iter().filter(|copy| copy.completes_on(cta, addr)).count() as u32,
        }
    }
}
