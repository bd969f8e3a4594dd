//! Puts the kernels' PTX into the host crate: the stored one where it matches the device sources, else a fresh one.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use tilewire_builder::{EVERY_LANE_VAR, Origin, kernels_ptx, shared_target_dir, stored_path, toolchain};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the kernels' PTX cannot be had: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let crate_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("kernels-gpu");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", crate_dir.join("src").display());
    println!("cargo::rerun-if-changed={}", stored_path(&crate_dir).display());
    println!("cargo::rerun-if-env-changed={}", toolchain::RUSTC_VAR);
    println!("cargo::rerun-if-env-changed={EVERY_LANE_VAR}");

    let out = out_dir.join("kernels.ptx");
    let (ptx, origin) = kernels_ptx(&crate_dir, &shared_target_dir(&out_dir))?;
    if let Origin::Built { because } = origin {
        println!("cargo::warning=built the kernels' PTX anew: {because}");
    }
    fs::write(out, ptx)?;
    Ok(())
}
