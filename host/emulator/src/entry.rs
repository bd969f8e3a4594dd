//! The compiled-in kernels: what to run for an entry of the table.
//!
//! All of them are compiled here, not in the crates that use this one, since that takes longer than everything else: whoever
//! changes the host or a test does not wait for it again.

use super::agent::Agent;
use super::faulty::{Faulty, Plant};
use super::launch::KernelLaunch;
use super::tensor_map::EmulatedMap;
use crate::kernels::abi::{GemmArgs, GemmEpilogueArgs, GemmReduceScatterArgs, GemmReduceScatterEpilogueArgs, MAPS};
use crate::kernels::config::{TileConfig, roles};
use crate::kernels::entries::Entry;
use crate::kernels::kernels::Kernel;
use crate::kernels::kernels::dispatch::{KernelArgs, KernelVisitor};
use crate::kernels::shape::{Rank, Role};

/// One call of a kernel of the entry table on one rank.
#[derive(Clone, Copy)]
pub struct EntryLaunch<Args> {
    /// Rank on which it runs.
    pub rank: Rank,
    /// CTAs of the grid.
    pub num_ctas: u32,
    /// Tensor maps of A, B, D and C.
    pub maps: [Option<EmulatedMap>; MAPS],
    /// The kernel's arguments.
    pub args: Args,
    /// A fault planted in its machine.
    pub plant: Option<Plant>,
    /// Number of the rank's call, from 0: plants go by it.
    pub call: usize,
}

/// Arguments of kernels that are compiled for the emulator.
pub trait EmulatedArgs: KernelArgs {
    /// The launch of `entry`'s kernel; `None` if `entry` takes other arguments.
    fn launch_of(entry: &Entry, given: &EntryLaunch<Self>) -> Option<KernelLaunch>;
}

macro_rules! emulated_args {
    ($($args:ty),*) => {
        $(impl EmulatedArgs for $args {
            fn launch_of(entry: &Entry, given: &EntryLaunch<Self>) -> Option<KernelLaunch> {
                Self::dispatch(entry, Emulate(given))
            }
        })*
    };
}
emulated_args!(GemmArgs, GemmEpilogueArgs, GemmReduceScatterArgs, GemmReduceScatterEpilogueArgs);

/// Makes a kernel's launch on the emulator.
struct Emulate<'a, Args>(&'a EntryLaunch<Args>);

impl<Args: KernelArgs> KernelVisitor<Args> for Emulate<'_, Args> {
    type Out = KernelLaunch;

    fn visit<K: Kernel<Args = Args>>(self) -> KernelLaunch {
        let EntryLaunch { rank, num_ctas, maps, args, plant, call } = *self.0;
        let plan = K::Config::SMEM;
        let body = move |agent: &Agent, at, role| {
            let m = Faulty::new(agent, plan, plant, call);
            match role {
                Role::Consumer(consumer) => K::consumer(&m, &args, at, consumer),
                _ => K::mover(&m, &args, at, role),
            }
        };
        KernelLaunch::new(rank, num_ctas, plan, roles(K::Config::CONSUMERS), body)
            .with_setup(move |agent| K::setup(&Faulty::new(agent, plan, plant, call)))
            .with_leave(move |agent, at, _| K::leave(&Faulty::new(agent, plan, plant, call), &args, at))
            .with_maps(maps)
            .with_watchdog(*args.watchdog())
    }
}
