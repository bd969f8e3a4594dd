//! Assembles the stored PTX for sm_90a, prints what each kernel uses, and fails on anything the gate refuses.
//! `scripts/ptxas-gate` provides the two programs that it needs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use tilewire_builder::gate::{judge, read_ptxas, read_sass};
use tilewire_builder::{shared_target_dir, stored_path};
use tilewire_kernels::entries::ENTRIES;

const USAGE: &str = "usage: ptxas-gate [--ptxas PROGRAM] [--nvdisasm PROGRAM] [--ptx FILE]";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ptxas-gate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the builder lies inside the device crate")?;
    let (mut ptxas, mut nvdisasm) = (PathBuf::from("ptxas"), PathBuf::from("nvdisasm"));
    let mut ptx = stored_path(crate_dir);
    let mut args = env::args().skip(1);
    while let Some(name) = args.next() {
        let value = PathBuf::from(args.next().ok_or(USAGE)?);
        match name.as_str() {
            "--ptxas" => ptxas = value,
            "--nvdisasm" => nvdisasm = value,
            "--ptx" => ptx = value,
            _ => return Err(format!("argument is {name}, but there are only these\n{USAGE}").into()),
        }
    }
    let work_dir = env::current_exe().map_or_else(|_| env::temp_dir(), |exe| shared_target_dir(&exe));
    fs::create_dir_all(&work_dir)?;
    let cubin = work_dir.join("kernels.cubin");
    let said = output(Command::new(&ptxas).args(["-arch=sm_90a", "-v"]).arg(&ptx).arg("-o").arg(&cubin))?;
    let sass = output(Command::new(&nvdisasm).arg("-c").arg(&cubin))?;

    let (assembly, sass) = (read_ptxas(&said), read_sass(&sass));
    for usage in &assembly.usage {
        let count = |number: Option<u32>| number.map_or_else(|| "unknown".to_string(), |number| number.to_string());
        println!("{}: {} registers, {} bytes of stack", usage.entry, count(usage.registers), count(usage.stack));
    }
    let names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
    let refusals = judge(&assembly, &sass, &names);
    for refusal in &refusals {
        eprintln!("refused: {refusal}");
    }
    println!("ptxas gate: {} kernels, {} refusals", names.len(), refusals.len());
    Ok(refusals.is_empty())
}

/// Everything that the program says; an error when it fails.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| format!("{program} does not start: {error}; try scripts/ptxas-gate"))?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.success() { Ok(said) } else { Err(format!("{program} failed:\n{said}")) }
}
