//! The emulation as the host uses it: memory, launches, runs.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use super::agent::Agent;
use super::launch::KernelLaunch;
use super::options::EmulatorOptions;
use super::trace::Trace;
use super::violation::{AgentRole, EmulatorError, Failure, Violation};
use super::watch::record_from_bytes;
use super::world::{Status, World};
use crate::kernels::abi::FaultRecord;
use crate::kernels::shape::{GlobalAddr, Rank};

/// What the runs of an emulation did, so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Operations of agents and copies.
    pub steps: u64,
    /// Virtual time.
    pub now_ns: u64,
    /// Bytes that bulk loads brought into shared memory.
    pub loaded_bytes: u64,
    /// Bytes that bulk stores took out of shared memory.
    pub stored_bytes: u64,
    /// wgmma groups.
    pub wgmma_groups: u64,
    /// For each launch, whether one of its roles was aborted.
    pub aborted: Vec<bool>,
}

/// An agent's code on its own stack; returns whether it was aborted.
type AgentCode = Coroutine<(), (), bool>;

/// Enough for a kernel's frames and for the formatting of a panic; mapped lazily.
const STACK_BYTES: usize = 1 << 20;

/// A machine of several ranks, emulated on the calling thread.
pub struct Emulation {
    world: Rc<RefCell<World>>,
    code: Vec<Option<AgentCode>>,
}

impl Emulation {
    /// A machine with no memory allocated.
    pub fn new(options: EmulatorOptions) -> Self {
        Self { world: Rc::new(RefCell::new(World::new(options))), code: Vec::new() }
    }

    /// Allocates memory of a rank, 4 GiB from any other allocation; nobody has written it. Any rank can address it.
    pub fn alloc(&mut self, rank: Rank, bytes: usize, name: impl Into<String>) -> GlobalAddr {
        self.world.borrow_mut().memory.alloc(rank, bytes, name.into())
    }

    /// Writes memory from the host, between runs.
    pub fn write(&mut self, addr: GlobalAddr, data: &[u8]) -> Result<(), EmulatorError> {
        self.host(|w| w.memory.write_from_host(addr, data))
    }

    /// Fills memory from the host and counts it as written.
    pub fn fill(&mut self, addr: GlobalAddr, bytes: usize, value: u8) -> Result<(), EmulatorError> {
        self.host(|w| w.memory.write_from_host(addr, &vec![value; bytes]))
    }

    /// Counts memory as written whatever it holds: NaNs, if nobody wrote it.
    pub fn mark_written(&mut self, addr: GlobalAddr, bytes: usize) -> Result<(), EmulatorError> {
        self.host(|w| w.memory.mark_written(addr, bytes as u64))
    }

    /// Reads memory; every byte must have been written.
    pub fn read(&self, addr: GlobalAddr, bytes: usize) -> Result<Vec<u8>, EmulatorError> {
        self.host(|w| w.memory.written_bytes(addr, bytes as u64).map(<[u8]>::to_vec))
    }

    /// Whether every byte of a range was written; false outside every allocation.
    pub fn is_written(&self, addr: GlobalAddr, bytes: usize) -> bool {
        self.world.borrow().memory.written_bytes(addr, bytes as u64).is_ok()
    }

    /// Reads the fault record at an address.
    pub fn fault_record(&self, addr: GlobalAddr) -> Result<FaultRecord, EmulatorError> {
        let bytes = self.read(addr, size_of::<FaultRecord>())?;
        let bytes = bytes.try_into().unwrap_or([0; size_of::<FaultRecord>()]);
        Ok(record_from_bytes(&bytes))
    }

    /// Appends a kernel to the stream of its rank; returns the launch's number.
    pub fn launch(&mut self, launch: KernelLaunch) -> Result<usize, EmulatorError> {
        self.host(|w| w.enqueue(launch))
    }

    /// Runs everything that was launched, to its end.
    pub fn run(&mut self) -> Result<RunStats, EmulatorError> {
        if self.world.borrow().failure.is_some() {
            let failure = Failure::new(Violation::AlreadyFailed, "an earlier error ended this emulation");
            return Err(self.world.borrow().error(None, failure));
        }
        let result = self.run_to_end();
        // Unwinds whoever has not ended; the world must not be borrowed meanwhile.
        self.code.clear();
        let mut world = self.world.borrow_mut();
        if let Err(error) = result {
            world.failure.get_or_insert_with(|| error.clone());
            return Err(error);
        }
        world.settle();
        drop(world);
        Ok(self.stats())
    }

    /// The events so far; `None` if the options did not ask for them.
    pub fn trace(&self) -> Option<Trace> {
        self.world.borrow().trace.clone()
    }

    /// What the runs did so far, the one that failed included.
    pub fn stats(&self) -> RunStats {
        let world = self.world.borrow();
        let aborted = world.launches.iter().map(|l| l.aborted).collect();
        RunStats { steps: world.step, now_ns: world.now_ns, aborted, ..world.stats.clone() }
    }

    fn host<R>(&self, f: impl FnOnce(&mut World) -> Result<R, Failure>) -> Result<R, EmulatorError> {
        let mut world = self.world.borrow_mut();
        let result = f(&mut world);
        result.map_err(|failure| world.error(None, failure))
    }

    fn run_to_end(&mut self) -> Result<(), EmulatorError> {
        loop {
            if let Some(failure) = self.world.borrow().failure.clone() {
                return Err(failure);
            }
            let starting = self.world.borrow_mut().start_launches();
            self.create_agents(starting)?;
            let turn = self.world.borrow_mut().next_turn();
            match turn {
                Turn::Agent(at) => self.resume(at)?,
                Turn::Copy(idx) => self.world.borrow_mut().advance_copy(idx),
                Turn::Again => {}
                Turn::AllEnded => return Ok(()),
                Turn::Deadlock => return Err(self.world.borrow().deadlock()),
            }
        }
    }

    fn create_agents(&mut self, agents: Vec<usize>) -> Result<(), EmulatorError> {
        for idx in agents {
            let code = self.agent_code(idx)?;
            self.code.resize_with(self.code.len().max(idx + 1), || None);
            self.code[idx] = Some(code);
        }
        Ok(())
    }

    fn agent_code(&self, idx: usize) -> Result<AgentCode, EmulatorError> {
        let world = self.world.clone();
        let (place, position, aborted, launch) = {
            let w = world.borrow();
            let cta = w.cta_of(idx);
            (w.agent(idx).place, cta.position, cta.aborted, w.launches[cta.launch].launch.clone())
        };
        let stack = DefaultStack::new(STACK_BYTES).map_err(|error| {
            let detail = format!("no stack for another agent: {error}");
            world.borrow().error(Some(idx), Failure::new(Violation::InvalidLaunch, detail))
        })?;
        Ok(Coroutine::with_stack(stack, move |yielder, ()| {
            let agent = Agent { world, yielder, idx, place };
            match place.role {
                AgentRole::Setup => (launch.setup)(&agent),
                AgentRole::Role(role) => return (launch.body)(&agent, position, role).is_err(),
                AgentRole::Leave => (launch.leave)(&agent, position, aborted),
            }
            false
        }))
    }

    /// Lets the agent at this place in the list of runnable ones go on.
    fn resume(&mut self, at: usize) -> Result<(), EmulatorError> {
        let idx = self.world.borrow().runnable[at];
        let Some(code) = self.code.get_mut(idx).and_then(Option::as_mut) else {
            self.world.borrow_mut().runnable.swap_remove(at);
            return Ok(());
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| code.resume(())));
        let mut world = self.world.borrow_mut();
        let created = match outcome {
            Ok(CoroutineResult::Yield(())) => Ok(Vec::new()),
            Ok(CoroutineResult::Return(aborted)) => world.agent_ended(idx, aborted),
            Err(payload) => {
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
                Err(Failure::new(Violation::KernelPanicked, text))
            }
        };
        if world.agents[idx].status != Status::Ready {
            world.runnable.swap_remove(at);
        }
        match created {
            Ok(created) => {
                if world.agents[idx].status == Status::Ended {
                    self.code[idx] = None;
                }
                drop(world);
                self.create_agents(created)
            }
            Err(failure) => {
                world.fail(Some(idx), failure);
                Ok(())
            }
        }
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The agent at this place in the list of runnable ones goes on.
    Agent(usize),
    /// This copy proceeds.
    Copy(usize),
    /// Something else has happened; look again.
    Again,
    /// Every launch has ended.
    AllEnded,
    /// Nothing can happen any more.
    Deadlock,
}
