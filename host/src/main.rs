//! The `tilewire` program; see [`tilewire::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tilewire::cli::main()
}
