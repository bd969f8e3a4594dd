//! Options that commands share, as clap reads them.

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::kernels::abi::{Placement, Transport};
use crate::world::World;

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MachineArg {
    /// A Hopper GPU if there is one, else the emulator.
    #[default]
    Auto,
    /// A Hopper GPU; an error if there is none.
    Gpu,
    /// The CPU emulator.
    Emulator,
}

/// How tiles get to their owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// Straight into the owner's slot.
    #[default]
    Push,
    /// Stored locally, carried over by the partition.
    Staged,
    /// Straight into the owner's slot, with plain stores instead of the copy engine.
    PushStores,
}

impl From<TransportArg> for Transport {
    fn from(arg: TransportArg) -> Self {
        match arg {
            TransportArg::Push => Transport::Push,
            TransportArg::Staged => Transport::Staged,
            TransportArg::PushStores => Transport::PushStores,
        }
    }
}

/// Where partials are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlacementArg {
    /// In the epilogue of the owner's own tiles.
    #[default]
    Epilogue,
    /// In the partition set apart by the SM margin (in every CTA after its last tile when the margin is 0).
    Partition,
}

impl From<PlacementArg> for Placement {
    fn from(arg: PlacementArg) -> Self {
        match arg {
            PlacementArg::Epilogue => Placement::Epilogue,
            PlacementArg::Partition => Placement::Partition,
        }
    }
}

/// The world a command runs in, and why if it had to choose.
pub fn open_world(machine: MachineArg, ranks: usize) -> Result<(World, Option<String>)> {
    match machine {
        MachineArg::Gpu => Ok((World::virtual_ranks(0, ranks)?, None)),
        MachineArg::Emulator => Ok((World::emulated(ranks)?, None)),
        MachineArg::Auto => match World::virtual_ranks(0, ranks) {
            Ok(world) => Ok((world, None)),
            Err(error @ Error::NoGpu { .. }) => Ok((World::emulated(ranks)?, Some(error.to_string()))),
            Err(error) => Err(error),
        },
    }
}
