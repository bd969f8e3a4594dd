//! A strict emulator of the machine that kernels run on: the same kernel source, on a CPU, under schedules chosen by a
//! seed.
//!
//! Each agent (one role of one CTA of one rank) is a coroutine; all of them share one thread, and at every operation the
//! seed decides who goes next and which copy proceeds. Time is virtual. A rule of the machine that a kernel breaks ends
//! the run with an [`EmulatorError`] that names the [`Violation`], the agent, the barrier and the counts; the same seed
//! replays it.
//!
//! What it knows beyond a schedule's luck: for every byte of shared and global memory it keeps who wrote and who read
//! it, and compares that with what the agent may know through barriers, signals, fences and kernel boundaries. So an
//! access that no barrier orders is found in whichever order the two sides happened to run.
//!
//! What it does not know: weak memory (a load sees the last store), instruction encodings, lane arithmetic, speed.
//!
//! ```
//! use tilewire_emulator::{Emulation, EmulatorOptions, KernelLaunch};
//! use tilewire_kernels::config::{Tile64x128, TileConfig};
//! use tilewire_kernels::machine::PutSignals;
//! use tilewire_kernels::shape::{Rank, Role};
//!
//! let mut emulation = Emulation::new(EmulatorOptions::with_seed(1));
//! let word = emulation.alloc(Rank(0), 4, "counter");
//! emulation.fill(word, 4, 0)?;
//! let count = move |agent: &tilewire_emulator::Agent, _, _| {
//!     agent.fetch_add_acq_rel_gpu(word, 1);
//!     Ok(())
//! };
//! emulation.launch(KernelLaunch::new(Rank(0), 3, <Tile64x128>::SMEM, &[Role::Producer], count))?;
//! emulation.run()?;
//! assert_eq!(emulation.read(word, 4)?, [3, 0, 0, 0]);
//! # Ok::<(), tilewire_emulator::EmulatorError>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod agent;
mod barriers;
mod clock;
mod copies;
mod emulation;
mod engine;
// Not in the unit tests: they run no kernel, and it takes long to compile.
#[cfg(not(test))]
mod entry;
mod exchange;
mod faulty;
mod launch;
mod lifecycle;
mod mbarrier;
mod memory;
mod mma;
mod options;
mod reduce;
mod repeats;
mod rng;
mod scheduler;
mod shadow;
mod share;
mod signals;
mod tensor;
mod tensor_map;
mod timeline;
mod trace;
mod violation;
mod watch;
mod world;

pub use agent::Agent;
pub use emulation::{Emulation, RunStats};
#[cfg(not(test))]
pub use entry::{EmulatedArgs, EntryLaunch};
pub use faulty::{Fault, Faulty, Plant};
pub use launch::{Body, KernelLaunch, Leave, Setup};
pub use mma::{Accumulator, HostArithmetic, Panel};
pub use options::{Copies, Delay, EmulatorOptions, Schedule, Turns};
pub use tensor_map::EmulatedMap;
/// The device crate.
pub use tilewire_kernels as kernels;
pub use trace::{BarrierId, Event, EventKind, Trace};
pub use violation::{AgentReport, AgentRole, BarrierReport, EmulatorError, Place, Report, Violation};
pub use watch::Patience;
