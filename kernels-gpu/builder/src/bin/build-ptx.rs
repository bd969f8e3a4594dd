//! Regenerates the stored PTX, or checks that it is what the sources give.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use tilewire_builder::stored::Stored;
use tilewire_builder::toolchain::Toolchain;
use tilewire_builder::{Built, EVERY_LANE_VAR, kernels, shared_target_dir, stored_path};

const USAGE: &str = "usage: build-ptx [--check] [--keep-ll] | --toolchain
  (none)       build the kernels and store the PTX
  --check      build the kernels, warnings denied, and fail if the stored PTX differs
  --keep-ll    also keep LLVM's intermediate code beside the other build products
  --toolchain  only say which compiler would be used, and fail if there is none";

fn main() -> ExitCode {
    let (mut check, mut keep_ll) = (false, false);
    for arg in env::args().skip(1) {
        match arg.as_str() {
            "--check" => check = true,
            "--keep-ll" => keep_ll = true,
            "--toolchain" => {
                return finish(
                    Toolchain::find()
                        .map(|found| format!("{}: {}", found.rustc.display(), found.version))
                        .map_err(Into::into),
                );
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("build-ptx: argument is {arg}, but there are only these\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    finish(run(check, keep_ll))
}

fn finish(result: Result<String, Box<dyn std::error::Error>>) -> ExitCode {
    match result {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("build-ptx: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(check: bool, keep_ll: bool) -> Result<String, Box<dyn std::error::Error>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the builder lies inside the device crate")?;
    let work_dir = env::current_exe().map_or_else(|_| PathBuf::from("target/device"), |exe| shared_target_dir(&exe));
    fs::create_dir_all(&work_dir)?;
    let ll = work_dir.join("kernels.ll");
    let mut builder = kernels(crate_dir).target_dir(&work_dir).deny_warnings(check);
    if keep_ll {
        builder = builder.keep_llvm_ir(&ll);
    }
    let hash = builder.source_hash()?;
    let built = builder.build_text()?;
    eprint!("{}", built.warnings);
    if keep_ll {
        eprintln!("LLVM's intermediate code: {}", ll.display());
    }
    let path = stored_path(crate_dir);
    if env::var_os(EVERY_LANE_VAR).is_some() {
        return Err(format!("{EVERY_LANE_VAR} is set, and kernels that it makes are not those to store").into());
    }
    if check {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        return compare(&text, &hash, &built).map_err(|reason| {
            format!("{} {reason}; `cargo run -p tilewire-builder --bin build-ptx` makes it anew", path.display()).into()
        });
    }
    let text = Stored { hash: &hash, compiler: &built.compiler, ptx: &built.ptx }.write();
    fs::create_dir_all(path.parent().unwrap_or(crate_dir))?;
    fs::write(&path, text)?;
    Ok(format!("{}: sources {hash}, {}", path.display(), built.compiler))
}

/// What to say when the stored text matches, or what is wrong with it.
fn compare(text: &str, hash: &str, built: &Built) -> Result<String, String> {
    let stored = Stored::read(text).ok_or("does not say which sources it was made from")?;
    if stored.hash != hash {
        return Err(format!("was made from sources {}, but these are {hash}", stored.hash));
    }
    if stored.ptx == built.ptx {
        return Ok(format!("the stored PTX is what the sources give: sources {hash}, {}", built.compiler));
    }
    if stored.compiler != built.compiler {
        // Two compilers schedule differently: the bytes say nothing then, while hash and contract still do.
        return Ok(format!(
            "the stored PTX is of these sources, but by {}; {} gives another text, which keeps the contract too",
            stored.compiler, built.compiler
        ));
    }
    let line = stored.ptx.lines().zip(built.ptx.lines()).take_while(|(a, b)| a == b).count() + 3;
    Err(format!("differs from what the same compiler makes of the same sources, first in line {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(hash: &str, compiler: &str, ptx: &str) -> Result<String, String> {
        let built = Built { ptx: "a\nb\n".into(), compiler: "rustc 2".into(), warnings: String::new() };
        compare(&Stored { hash, compiler, ptx }.write(), "01", &built)
    }

    #[test]
    fn only_a_text_of_these_sources_passes_the_check() {
        assert!(against("01", "rustc 2", "a\nb\n").is_ok());
        assert_eq!(against("02", "rustc 2", "a\nb\n").unwrap_err(), "was made from sources 02, but these are 01");
    }

    #[test]
    fn an_edited_text_fails_unless_another_compiler_made_it() {
        assert!(against("01", "rustc 2", "a\nc\n").unwrap_err().ends_with("first in line 4"));
        assert!(against("01", "rustc 1", "a\nc\n").unwrap().contains("but by rustc 1"));
    }
}
