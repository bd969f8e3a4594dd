//! Bounded waits in virtual time.

use super::agent::Agent;
use super::trace::EventKind;
use super::violation::Failure;
use super::world::{Look, Status, World};
use crate::kernels::abi::{FaultRecord, Wait, Watchdog};
use crate::kernels::machine::{Aborted, NeighbourKernels, Settle, Stopwatch, Watch};
use crate::kernels::shape::GlobalAddr;

/// When a wait began.
pub struct Patience {
    start_ns: u64,
}

impl Settle for Agent<'_> {}

impl NeighbourKernels for Agent<'_> {}

impl Watch for Agent<'_> {
    type Patience = Patience;

    fn patience(&self) -> Patience {
        Patience { start_ns: self.world.borrow().now_ns }
    }

    fn pause(&self, patience: &mut Patience, wait: impl Fn() -> Wait) -> Result<(), Aborted> {
        self.give_up(patience, &wait)?;
        self.world.borrow_mut().block_on_looks(self.idx, patience.start_ns, wait());
        self.yielder.suspend(());
        self.world.borrow_mut().end_wait(self.idx);
        self.give_up(patience, &wait)
    }
}

impl Stopwatch for Agent<'_> {
    /// Steps of the whole machine.
    fn ticks(&self) -> u32 {
        self.world.borrow().step as u32
    }

    fn nanoseconds(&self) -> u32 {
        self.world.borrow().now_ns as u32
    }
}

impl Agent<'_> {
    fn give_up(&self, patience: &Patience, wait: &impl Fn() -> Wait) -> Result<(), Aborted> {
        let over = self.op_in_turn(|w, me| {
            let Some(watchdog) = w.watchdog_of(me) else { return Ok(false) };
            if w.memory.word(watchdog.abort)? != 0 {
                return Ok(true);
            }
            let (wait, elapsed_ns) = (wait(), w.now_ns - patience.start_ns);
            if watchdog.deadline_ns == 0 || elapsed_ns <= watchdog.limit_ns(wait.kind) {
                return Ok(false);
            }
            w.report_fault(me, &watchdog, wait, elapsed_ns)?;
            Ok(true)
        });
        if over {
            self.world.borrow_mut().agents[self.idx].gave_up = true;
            return Err(Aborted);
        }
        Ok(())
    }
}

impl World {
    fn watchdog_of(&self, me: usize) -> Option<Watchdog> {
        self.launches[self.cta_of(me).launch].launch.watchdog
    }

    /// Remembers what the agent looked at in vain.
    pub(super) fn look(&mut self, me: usize, look: Look, version: u64) {
        let looks = &mut self.agents[me].looks;
        looks.retain(|(other, _)| *other != look);
        looks.push((look, version));
    }

    fn version(&mut self, me: usize, look: Look) -> u64 {
        match look {
            Look::Barrier(addr) => self.cta_of(me).barriers.get(&addr).map_or(0, |b| b.phase),
            Look::Word(addr) => self.memory.words.entry(addr).or_default().version,
        }
    }

    /// Blocks the agent until something that it looked at changes; if something already has, it only gives way.
    fn block_on_looks(&mut self, me: usize, start_ns: u64, wait: Wait) {
        let looks = std::mem::take(&mut self.agents[me].looks);
        self.agents[me].wait = Some(wait);
        if looks.is_empty() || looks.iter().any(|&(look, seen)| self.version(me, look) != seen) {
            return;
        }
        self.record(me, EventKind::WaitBegin { wait });
        let generation = self.block(me);
        let cta = self.agents[me].cta;
        for &(look, _) in &looks {
            let waiters = match look {
                Look::Barrier(addr) => self.ctas[cta].barriers.get_mut(&addr).map(|b| &mut b.waiters),
                Look::Word(addr) => Some(&mut self.memory.words.entry(addr).or_default().waiters),
            };
            if let Some(waiters) = waiters {
                waiters.push((me, generation));
            }
        }
        self.agents[me].looks = looks;
        if let Some(watchdog) = self.watchdog_of(me)
            && watchdog.deadline_ns > 0
        {
            let deadline_ns = start_ns.saturating_add(watchdog.limit_ns(wait.kind)).saturating_add(1);
            self.agents[me].deadline_ns = deadline_ns;
            self.next_deadline_ns = self.next_deadline_ns.min(deadline_ns);
        }
    }

    fn end_wait(&mut self, me: usize) {
        self.agents[me].looks.clear();
        self.agents[me].deadline_ns = u64::MAX;
        if let Some(wait) = self.agents[me].wait.take() {
            self.record(me, EventKind::WaitEnd { kind: wait.kind, index: wait.index });
        }
    }

    /// Wakes agents whose deadline has passed.
    pub(super) fn fire_deadlines(&mut self) {
        if self.now_ns < self.next_deadline_ns {
            return;
        }
        self.next_deadline_ns = u64::MAX;
        for agent in 0..self.agents.len() {
            let a = &self.agents[agent];
            if a.status == Status::Blocked && a.deadline_ns <= self.now_ns {
                self.wake(agent, a.generation);
            } else if a.status == Status::Blocked {
                self.next_deadline_ns = self.next_deadline_ns.min(a.deadline_ns);
            }
        }
    }

    /// Lets time pass until the next deadline of a waiting agent. False if there is none.
    pub(super) fn jump_to_deadline(&mut self) -> bool {
        let blocked = self.agents.iter().filter(|a| a.status == Status::Blocked);
        match blocked.map(|a| a.deadline_ns).min() {
            Some(deadline_ns) if deadline_ns < u64::MAX => {
                self.now_ns = self.now_ns.max(deadline_ns);
                self.next_deadline_ns = deadline_ns;
                true
            }
            _ => false,
        }
    }

    /// The first of a rank to report claims the record; whoever reports raises every rank's abort word.
    fn report_fault(&mut self, me: usize, watchdog: &Watchdog, wait: Wait, elapsed_ns: u64) -> Result<(), Failure> {
        if self.memory.word(watchdog.claim)? == 0 {
            self.poke(watchdog.claim, 1)?;
            let place = self.agents[me].place;
            let record = FaultRecord {
                state: 1,
                rank: watchdog.rank,
                cta: place.cta,
                role: wait.role.code(),
                kind: wait.kind as u32,
                index: wait.index,
                awaited: wait.awaited,
                seen: wait.seen,
                elapsed_ns,
                ..FaultRecord::default()
            };
            self.memory.write_from_host(watchdog.record, &record_bytes(&record))?;
            self.record(me, EventKind::Fault { wait });
        }
        self.poke(watchdog.abort, 1)?;
        for abort in watchdog.peer_aborts.iter().take(watchdog.world as usize) {
            self.poke(*abort, 1)?;
        }
        self.wake_bounded_waits();
        Ok(())
    }

    fn poke(&mut self, addr: GlobalAddr, value: u32) -> Result<(), Failure> {
        self.memory.word(addr)?;
        self.memory.bytes_mut(addr, 4)?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }
}

/// Bytes of a fault record in its C layout.
fn record_bytes(r: &FaultRecord) -> Vec<u8> {
    let words = [r.state, r.rank, r.cta, r.role, r.kind, r.index, r.awaited, r.seen];
    let last = [r.aborted, r.reserved].into_iter().flat_map(u32::to_le_bytes);
    words.iter().flat_map(|w| w.to_le_bytes()).chain(r.elapsed_ns.to_le_bytes()).chain(last).collect()
}

/// The fault record that these bytes hold.
pub(super) fn record_from_bytes(bytes: &[u8; size_of::<FaultRecord>()]) -> FaultRecord {
    let word = |i: usize| u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
    FaultRecord {
        state: word(0),
        rank: word(1),
        cta: word(2),
        role: word(3),
        kind: word(4),
        index: word(5),
        awaited: word(6),
        seen: word(7),
        elapsed_ns: u64::from(word(8)) | u64::from(word(9)) << 32,
        aborted: word(10),
        reserved: word(11),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_record_survives_its_bytes() {
        let record = FaultRecord {
            state: 1,
            rank: 2,
            cta: 3,
            role: 4,
            kind: 5,
            index: 6,
            awaited: 7,
            seen: 8,
            elapsed_ns: 1 << 40,
            aborted: 9,
            reserved: 10,
        };
        let bytes: [u8; size_of::<FaultRecord>()] = record_bytes(&record).try_into().unwrap();
        assert_eq!(record_from_bytes(&bytes), record);
    }
}
