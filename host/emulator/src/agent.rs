//! One agent: a role of a CTA of a rank, as a coroutine that gives way at every operation.

use std::cell::RefCell;
use std::rc::Rc;

use corosensei::Yielder;

use super::violation::{AgentRole, Failure, Place, Violation};
use super::world::World;

/// The machine as one role of one CTA sees it. Implements every machine trait.
pub struct Agent<'y> {
    pub(super) world: Rc<RefCell<World>>,
    pub(super) yielder: &'y Yielder<(), ()>,
    pub(super) idx: usize,
    pub(super) place: Place,
}

impl Agent<'_> {
    /// Who this is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Lets others go first, as often as the schedule says.
    pub(super) fn turn(&self) {
        let yields = self.world.borrow_mut().tick();
        if yields {
            self.yielder.suspend(());
        }
    }

    /// One operation: others may go first, then it happens at once. Never returns if a rule is broken.
    pub(super) fn op<R>(&self, f: impl FnOnce(&mut World, usize) -> Result<R, Failure>) -> R {
        self.turn();
        self.op_in_turn(|w, me| {
            // Whatever it looked at before, it is past waiting for that.
            w.agents[me].looks.clear();
            f(w, me)
        })
    }

    /// A look at something that the agent may be about to wait for.
    pub(super) fn look_op<R>(&self, f: impl FnOnce(&mut World, usize) -> Result<R, Failure>) -> R {
        self.turn();
        self.op_in_turn(f)
    }

    /// The same without giving way first.
    pub(super) fn op_in_turn<R>(&self, f: impl FnOnce(&mut World, usize) -> Result<R, Failure>) -> R {
        let result = f(&mut self.world.borrow_mut(), self.idx);
        match result {
            Ok(value) => value,
            Err(failure) => self.stop(failure),
        }
    }

    /// Ends the run. The scheduler drops this coroutine, so the loop ends by unwinding out of `suspend`.
    fn stop(&self, failure: Failure) -> ! {
        self.world.borrow_mut().fail(Some(self.idx), failure);
        loop {
            self.yielder.suspend(());
        }
    }
}

impl World {
    /// The operation is one of a thread.
    pub(super) fn must_be_thread(&self, agent: usize, operation: &str) -> Result<(), Failure> {
        if self.agent(agent).is_warpgroup() {
            return Err(Failure::new(Violation::WrongRole, format!("{operation} is for a thread role")));
        }
        Ok(())
    }

    /// The operation is one of a warpgroup.
    pub(super) fn must_be_warpgroup(&self, agent: usize, operation: &str) -> Result<(), Failure> {
        match self.agent(agent).place.role {
            AgentRole::Role(_) if self.agent(agent).is_warpgroup() => Ok(()),
            _ => Err(Failure::new(Violation::WrongRole, format!("{operation} is for a warpgroup role"))),
        }
    }
}
