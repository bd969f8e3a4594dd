//! Mbarriers as agents use them.

use super::agent::Agent;
use super::clock::View;
use super::mbarrier::{Barrier, BarrierMisuse, MAX_COUNT};
use super::trace::{BarrierId, EventKind};
use super::violation::{Failure, Violation};
use super::world::{LaneOwner, Look, World};
use crate::kernels::machine::Mbarriers;
use crate::kernels::shape::{Mbarrier, Parity, WARPS_PER_WARPGROUP};

impl Mbarriers for Agent<'_> {
    fn mbarrier_init(&self, bar: Mbarrier, arrivals: u32) {
        self.op(|w, me| w.init_barrier(me, bar.0.0, arrivals));
    }

    fn try_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool {
        self.look_op(|w, me| w.try_wait(me, bar.0.0, parity))
    }

    fn arrive(&self, bar: Mbarrier) {
        self.op(|w, me| {
            let count = if w.agent(me).is_warpgroup() { WARPS_PER_WARPGROUP } else { 1 };
            w.arrive(me, bar.0.0, count, 0)
        });
    }

    fn arrive_many(&self, bar: Mbarrier, count: u32) {
        self.op(|w, me| {
            w.must_be_thread(me, "arrive_many")?;
            w.arrive(me, bar.0.0, count, 0)
        });
    }

    fn arrive_expect_tx(&self, bar: Mbarrier, bytes: u32) {
        self.op(|w, me| {
            w.must_be_thread(me, "arrive_expect_tx")?;
            w.arrive(me, bar.0.0, 1, bytes)
        });
    }
}

impl World {
    fn init_barrier(&mut self, me: usize, addr: u32, arrivals: u32) -> Result<(), Failure> {
        self.must_be_thread(me, "mbarrier_init")?;
        let cta = self.agents[me].cta;
        self.barrier_addr(cta, addr)?;
        if self.ctas[cta].barriers.contains_key(&addr) {
            return Err(Failure::at_barrier(Violation::DoubleInit, cta, addr, "initialises a barrier again"));
        }
        if arrivals == 0 || arrivals > MAX_COUNT {
            let detail = format!("initialises a barrier for {arrivals} arrivals; 1 to {MAX_COUNT} are allowed");
            return Err(Failure::at_barrier(Violation::InvalidArrivalCount, cta, addr, detail));
        }
        let lane = self.new_lanes(&[LaneOwner::Barrier { cta, addr }]);
        self.ctas[cta].barriers.insert(addr, Barrier::new(arrivals, lane));
        let bar = self.barrier_id(cta, addr);
        self.record(me, EventKind::BarrierInit { bar, arrivals });
        Ok(())
    }

    fn barrier_addr(&self, cta: usize, addr: u32) -> Result<(), Failure> {
        if !addr.is_multiple_of(Mbarrier::BYTES) {
            return Err(Failure::new(Violation::Misaligned, format!("barrier at shared address {addr} is misaligned")));
        }
        if addr.saturating_add(Mbarrier::BYTES) as usize > self.ctas[cta].smem.len() {
            let detail = format!("barrier at shared address {addr} exceeds the CTA's shared memory");
            return Err(Failure::new(Violation::OutOfBounds, detail));
        }
        Ok(())
    }

    /// The barrier at an address of the agent's CTA.
    pub(super) fn barrier_mut(&mut self, cta: usize, addr: u32) -> Result<&mut Barrier, Failure> {
        self.barrier_addr(cta, addr)?;
        let missing =
            || Failure::at_barrier(Violation::UninitialisedBarrier, cta, addr, "uses a barrier before its init");
        self.ctas[cta].barriers.get_mut(&addr).ok_or_else(missing)
    }

    fn try_wait(&mut self, me: usize, addr: u32, parity: Parity) -> Result<bool, Failure> {
        let cta = self.agents[me].cta;
        let barrier = self.barrier_mut(cta, addr)?;
        let (phase, lane, completed) = (barrier.phase, barrier.lane, barrier.completed(parity));
        // What an agent knows of a barrier, by its own waits or by word from others, is that so many phases are over. A
        // wait with the next parity can only mean the phase after those (or, with the other parity, the last of them):
        // if the barrier is already two past that, the parity no longer tells which phase it answers for.
        let known = u64::from(self.agents[me].view.generic.get(lane));
        let over = if known & 1 == u64::from(parity.0 & 1) { known + 1 } else { known };
        if phase > over {
            let detail = format!(
                "waits with parity {} for phase {}, known to it as the next, but the barrier is in phase {phase}",
                parity.0,
                i128::from(over) - 1
            );
            return Err(Failure::at_barrier(Violation::ParityTwoPhasesBehind, cta, addr, detail));
        }
        if completed {
            let view = self.ctas[cta].barriers.get(&addr).map(|b| b.acquired.clone()).unwrap_or_default();
            self.acquire(me, &view);
            self.agents[me].looks.clear();
            let bar = self.barrier_id(cta, addr);
            self.record(me, EventKind::Passed { bar, parity: parity.0 });
        } else {
            self.look(me, Look::Barrier(addr), phase);
        }
        Ok(completed)
    }

    fn arrive(&mut self, me: usize, addr: u32, count: u32, bytes: u32) -> Result<(), Failure> {
        let cta = self.agents[me].cta;
        self.barrier_mut(cta, addr)?;
        let view = self.release(me);
        let barrier = self.barrier_mut(cta, addr)?;
        let result = barrier.expect(bytes).and_then(|()| {
            barrier.released.join(&view);
            barrier.arrive(count)
        });
        let bar = self.barrier_id(cta, addr);
        self.record(me, EventKind::Arrive { bar, count, bytes });
        match result {
            Ok(flipped) => {
                self.after_arrival(me, cta, addr, flipped);
                Ok(())
            }
            Err(misuse) => Err(self.misuse(misuse, cta, addr, count, bytes)),
        }
    }

    /// A load brings its bytes; what its issuer knew passes on with them.
    pub(super) fn complete_tx(
        &mut self,
        by: usize,
        cta: usize,
        addr: u32,
        bytes: u32,
        view: &View,
    ) -> Result<(), Failure> {
        let barrier = self.barrier_mut(cta, addr)?;
        barrier.released.join(view);
        match barrier.complete(bytes) {
            Ok(flipped) => {
                self.after_arrival(by, cta, addr, flipped);
                Ok(())
            }
            Err(misuse) => Err(self.misuse(misuse, cta, addr, 0, bytes)),
        }
    }

    fn after_arrival(&mut self, by: usize, cta: usize, addr: u32, flipped: bool) {
        if !flipped {
            return;
        }
        let Some(barrier) = self.ctas[cta].barriers.get_mut(&addr) else { return };
        let (phase, waiters) = (barrier.phase, std::mem::take(&mut barrier.waiters));
        self.wake_all(waiters);
        let bar = self.barrier_id(cta, addr);
        self.record(by, EventKind::PhaseComplete { bar, phase: phase - 1 });
    }

    fn misuse(&self, misuse: BarrierMisuse, cta: usize, addr: u32, count: u32, bytes: u32) -> Failure {
        let (violation, detail) = match misuse {
            BarrierMisuse::ArrivalOverflow => {
                (Violation::ArrivalOverflow, format!("arrives {count} times, more than are pending"))
            }
            BarrierMisuse::TooManyBytes => {
                (Violation::ExpectTxTooSmall, format!("a copy brings {bytes} bytes, more than the phase still expects"))
            }
            BarrierMisuse::TxCountOverflow => {
                (Violation::TxCountOverflow, format!("expects {bytes} more bytes, past the limit of {MAX_COUNT}"))
            }
        };
        Failure::at_barrier(violation, cta, addr, detail)
    }

    pub(super) fn barrier_id(&self, cta: usize, addr: u32) -> BarrierId {
        let (name, index) = self.barrier_name(cta, addr);
        BarrierId { name, index }
    }
}
