//! The `tilewire` program: the main job, validation of any shape, and what the emulator can show.

mod demo;
mod emulate;
mod epilogue;
mod job;
mod options;
pub mod table;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Matrix multiplication fused with communication on NVIDIA Hopper GPUs.
#[derive(Parser, Debug)]
#[command(name = "tilewire", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs the main job, GEMM + ReduceScatter over 4 ranks, and checks it against the CPU reference.
    Demo(demo::DemoArgs),
    /// Runs one GEMM + ReduceScatter of any shape and checks it against the CPU reference.
    Validate(validate::ValidateArgs),
    /// Runs a kernel on the CPU emulator, step by step, with a planted fault or without.
    Emulate(emulate::EmulateArgs),
}

/// Runs the program on the process's arguments. The exit status is 0 only if every check passed.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Emulate(args) => emulate::run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
