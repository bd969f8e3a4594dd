//! Mutants of the real kernels: each [`Fault`] in the smallest call in which it breaks something, with the violation that
//! the emulator must report.

mod scenario;
mod table;

use crate::emulator::{EmulatorOptions, Fault, Plant, Violation};

pub use scenario::{Outcome, Scenario, ScenarioKernel};
pub use table::MUTANTS;

/// A fault, where it strikes, and what it must be reported as.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What goes wrong, and where.
    pub plant: Plant,
    /// The call.
    pub scenario: Scenario,
    /// What the emulator may report, under any schedule.
    pub expected: &'static [Violation],
    /// Where several reports are right: why the schedule decides between them.
    pub why: &'static str,
}

impl Mutant {
    /// The first mutant with this fault.
    pub fn of(fault: Fault) -> Option<&'static Self> {
        MUTANTS.iter().find(|m| m.plant.fault == fault)
    }

    /// Runs it under the schedule of `seed`.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn run(&self, seed: u64) -> crate::Result<Outcome> {
        self.scenario.run(EmulatorOptions::with_seed(seed), Some(self.plant))
    }
}
