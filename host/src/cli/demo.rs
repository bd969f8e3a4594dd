//! `tilewire demo`: the main job.

use std::path::PathBuf;

use clap::Args;

use super::job::{Job, JobOperands, print_outcomes};
use super::options::{MachineArg, open_world};
use crate::error::Result;
use crate::kernels::abi::{Placement, Transport};
use crate::model::ModelFile;
use crate::world::World;

/// Ranks of the main job.
const WORLD: usize = 4;

/// Options of `demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Where to run.
    #[arg(long, value_enum, default_value_t)]
    machine: MachineArg,
    /// Real weights: a safetensors file, whose feed-forward down projections are sharded over the ranks.
    #[arg(long, value_name = "FILE.safetensors")]
    model: Option<PathBuf>,
    /// Rows of activations for --model.
    #[arg(long, default_value_t = 256)]
    tokens: usize,
    /// Seed of the random operands.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command; whether everything was right.
pub fn run(args: &DemoArgs) -> Result<bool> {
    let (world, why) = open_world(args.machine, WORLD)?;
    if let Some(why) = why {
        println!("{why}");
        println!("running the same kernel source on the CPU emulator instead");
    }
    println!("machine: {}", world.describe());
    let outcomes = match &args.model {
        Some(path) => model_jobs(&world, path, args)?,
        None => random_jobs(&world, args.seed)?,
    };
    Ok(print_outcomes(&world, &outcomes))
}

/// The configurations the demo shows: both transports, both placements.
fn configurations(world: &World) -> Vec<(Transport, Placement, u32)> {
    let margin = if world.is_gpu() { 2 } else { 1 };
    vec![
        (Transport::Push, Placement::Epilogue, 0),
        (Transport::Push, Placement::Partition, 0),
        (Transport::Staged, Placement::Partition, margin),
        (Transport::Staged, Placement::Epilogue, margin),
    ]
}

fn jobs(world: &World, name: &str, m: usize, seed: u64) -> Vec<Job> {
    configurations(world)
        .into_iter()
        .map(|(transport, placement, sm_margin)| Job {
            name: name.to_string(),
            m,
            transport,
            placement,
            sm_margin,
            epilogue: None,
            repeats: 5,
            seed,
        })
        .collect()
}

fn random_jobs(world: &World, seed: u64) -> Result<Vec<super::job::Outcome>> {
    let (m, n, k) = if world.is_gpu() { (8192, 8192, 28672 / WORLD) } else { (512, 512, 256) };
    let operands = JobOperands::random(m, n, k, WORLD, seed)?;
    jobs(world, "random", m, seed).iter().map(|job| job.run(world, &operands)).collect()
}

fn model_jobs(world: &World, path: &std::path::Path, args: &DemoArgs) -> Result<Vec<super::job::Outcome>> {
    let file = ModelFile::open(path)?;
    let mut outcomes = Vec::new();
    for projection in file.down_projections()? {
        let operands = JobOperands::from_weights(&file.read(&projection)?, args.tokens, WORLD, args.seed)?;
        let job = Job {
            name: projection.name.clone(),
            m: args.tokens,
            transport: Transport::Push,
            placement: Placement::Epilogue,
            sm_margin: 0,
            epilogue: None,
            repeats: 3,
            seed: args.seed,
        };
        outcomes.push(job.run(world, &operands)?);
    }
    Ok(outcomes)
}
