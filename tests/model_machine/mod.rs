//! A machine of loom types for model checking: the production protocols run on it in every interleaving.
//!
//! One loom thread is one role. Payload (shared-memory panels, slots, D) is one number a panel, in cells whose accesses
//! loom checks for races; barriers and words are atomics with the orders that the machine traits promise, no more. What
//! the hardware does asynchronously, the copy engine and the tensor cores, touches its memory at both ends of the time
//! in which it may: at issue and at the wait. A conflicting access between the two is a race at one of the ends, or
//! shows as a changed or poisoned value.
//!
//! [`Mutant`]s are changes to this machine; each stands for the same mistake in the code that runs on it, and each test
//! of one names the message by which the model notices.
#![allow(dead_code, unused_imports, reason = "each model uses the part it needs")]

mod agent;
mod barrier;
mod engine;
mod exchange;
mod memory;
mod tensor;
mod waiting;
mod watch;
mod world;

pub use agent::{Agent, Cta, Open, Timing};
pub use engine::operand_value;
pub use memory::{D_STRIDE, Memory, Payload, d_panel};
pub use tensor::{Acc, multiplied, shared};
pub use watch::FOREVER;
pub use world::Problem;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tilewire_kernels::shape::Role;

/// A change to the machine that a model must notice. Names are those of `SmemPlan::name_of` and of the workspace's
/// words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// This role passes barriers of this name without waiting.
    NoWait(Role, &'static str),
    /// Arrivals on barriers of this name are lost.
    NoArrive(&'static str),
    /// Arrivals on barriers of this name release nothing.
    RelaxedArrive(&'static str),
    /// Waits for barriers of this name acquire nothing.
    RelaxedWait(&'static str),
    /// Copies complete their bytes without releasing what they brought.
    RelaxedCopy,
    /// `wait_group_read` does not wait.
    NoGroupRead,
    /// `wait_group_complete` does not wait.
    NoGroupComplete,
    /// This role leaves out the proxy fence.
    NoProxyFence(Role),
    /// `wait_mma` does not wait.
    NoMmaWait,
    /// Stores to words of this name release nothing.
    RelaxedStore(&'static str),
    /// Loads of words of this name acquire nothing.
    RelaxedLoad(&'static str),
    /// Stores of this value to words of this name are lost.
    NoStore(&'static str, u32),
    /// Loads of words of this name find a number so much greater.
    Ahead(&'static str, u32),
    /// The sums of a cut tile are written after the word that says that they are there.
    LateSums,
    /// The word that the taker of sums waited for is cleared before it reads them.
    EarlyClear,
    /// All sums that are given away lie in one place.
    OnePlace,
    /// Words are taken whatever their flags are.
    AnyFlag,
    /// Read-modify-writes order nothing.
    RelaxedAdd,
    /// A read-modify-write is a load and a store.
    SplitAdd,
    /// No deadline ever passes.
    NoDeadline,
    /// Waits do not look at the abort word.
    NoAbortLook,
    /// The claim is a load and a store.
    SplitClaim,
}

/// Runs `model` in every interleaving with at most `preemptions` preemptions, and prints how many there were.
///
/// A deadlock is reported with everybody's wait, a race as loom's "Causality violation".
pub fn check(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    // One model at a time, so that the count and the time are its own.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(|failed| failed.into_inner());
    EXECUTIONS.store(0, Ordering::Relaxed);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let begun = Instant::now();
    builder.check(move || {
        EXECUTIONS.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = EXECUTIONS.load(Ordering::Relaxed);
    println!("{name}: bound {preemptions}, {executions} executions, {} ms", begun.elapsed().as_millis());
    assert!(executions > 1, "{name} ran one interleaving only: nothing is concurrent in it");
}
