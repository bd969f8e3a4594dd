//! `tilewire validate`: one GEMM + ReduceScatter of any shape, checked.

use clap::Args;

use super::epilogue::EpilogueOptions;
use super::job::{Job, JobOperands, print_outcomes};
use super::options::{MachineArg, PlacementArg, TransportArg, open_world};
use crate::error::Result;
use crate::plan::check;

/// Options of `validate`.
#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Rows of A on every rank.
    #[arg(long, default_value_t = 512)]
    m: usize,
    /// Columns of the result.
    #[arg(long, default_value_t = 512)]
    n: usize,
    /// Columns of A on each rank: the K shard.
    #[arg(long, default_value_t = 512)]
    k: usize,
    /// Number of ranks.
    #[arg(long, default_value_t = 4)]
    world: usize,
    /// How tiles get to their owners.
    #[arg(long, value_enum, default_value_t)]
    transport: TransportArg,
    /// Where partials are added.
    #[arg(long, value_enum, default_value_t)]
    placement: PlacementArg,
    /// SMs of each rank that compute nothing.
    #[arg(long, default_value_t = 0)]
    sm_margin: u32,
    #[command(flatten)]
    epilogue: EpilogueOptions,
    /// Seed of the random operands.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to run.
    #[arg(long, value_enum, default_value_t)]
    machine: MachineArg,
}

/// Runs the command; whether everything was right.
pub fn run(args: &ValidateArgs) -> Result<bool> {
    // The plan checks them too, but only once operands of that size are there.
    for (name, extent) in [("m", args.m), ("n", args.n), ("k", args.k)] {
        check::extent(name, extent)?;
    }
    let epilogue = args.epilogue.checked()?;
    let (world, why) = open_world(args.machine, args.world)?;
    if let Some(why) = why {
        println!("{why}");
    }
    println!("machine: {}", world.describe());
    let job = Job {
        name: "random".to_string(),
        m: args.m,
        transport: args.transport.into(),
        placement: args.placement.into(),
        sm_margin: args.sm_margin,
        epilogue,
        repeats: 5,
        seed: args.seed,
    };
    let operands = JobOperands::random(args.m, args.n, args.k, args.world, args.seed)?;
    let outcome = job.run(&world, &operands)?;
    Ok(print_outcomes(&world, &[outcome]))
}
