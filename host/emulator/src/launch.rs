//! What the host launches.

use std::rc::Rc;

use super::agent::Agent;
use super::tensor_map::EmulatedMap;
use crate::kernels::abi::{MAPS, Watchdog};
use crate::kernels::config::SmemPlan;
use crate::kernels::machine::Aborted;
use crate::kernels::shape::{CtaPosition, Rank, Role};

/// One thread's code before the roles begin.
pub type Setup = Rc<dyn Fn(&Agent)>;
/// A role's code.
pub type Body = Rc<dyn Fn(&Agent, CtaPosition, Role) -> Result<(), Aborted>>;
/// One thread's code after the roles have ended; told whether one of them was aborted.
pub type Leave = Rc<dyn Fn(&Agent, CtaPosition, bool)>;

/// A kernel launch on the stream of one rank.
#[derive(Clone)]
pub struct KernelLaunch {
    /// Rank on which it runs.
    pub rank: Rank,
    /// CTAs of the grid, all resident at once.
    pub num_ctas: u32,
    /// The shared-memory plan: names barriers in reports.
    pub smem_plan: SmemPlan,
    /// Dynamic shared memory of a CTA.
    pub smem_bytes: u32,
    /// Tensor maps of A, B, D and C.
    pub maps: [Option<EmulatedMap>; MAPS],
    /// Bounds of the waits; `None` waits for ever and cannot be aborted.
    pub watchdog: Option<Watchdog>,
    /// Roles of each CTA, one agent each.
    pub roles: Vec<Role>,
    /// Runs before the roles.
    pub setup: Setup,
    /// Runs as each role.
    pub body: Body,
    /// Runs after the roles.
    pub leave: Leave,
}

impl KernelLaunch {
    /// A launch of `body` that initialises no barrier, uses no tensor map, has no watchdog and leaves without a word.
    pub fn new(
        rank: Rank,
        num_ctas: u32,
        smem_plan: SmemPlan,
        roles: &[Role],
        body: impl Fn(&Agent, CtaPosition, Role) -> Result<(), Aborted> + 'static,
    ) -> Self {
        Self {
            rank,
            num_ctas,
            smem_plan,
            smem_bytes: smem_plan.total_bytes,
            maps: [None; MAPS],
            watchdog: None,
            roles: roles.to_vec(),
            setup: Rc::new(|_| {}),
            body: Rc::new(body),
            leave: Rc::new(|_, _, _| {}),
        }
    }

    /// With this setup.
    pub fn with_setup(mut self, setup: impl Fn(&Agent) + 'static) -> Self {
        self.setup = Rc::new(setup);
        self
    }

    /// With this way to leave.
    pub fn with_leave(mut self, leave: impl Fn(&Agent, CtaPosition, bool) + 'static) -> Self {
        self.leave = Rc::new(leave);
        self
    }

    /// With these tensor maps of A, B, D and C.
    pub fn with_maps(mut self, maps: [Option<EmulatedMap>; MAPS]) -> Self {
        self.maps = maps;
        self
    }

    /// With this watchdog.
    pub fn with_watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }
}
