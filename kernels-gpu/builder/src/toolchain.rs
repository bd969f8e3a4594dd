//! Finding a compiler that can build device code.
//!
//! A compiler qualifies when it is recent enough and has `core` for nvptx64, either ready-made (`rustup target add
//! nvptx64-nvidia-cuda`) or as sources (`rustup component add rust-src`, Debian's `rust-web-src`). Only the compiler is
//! used, never its cargo; `compile.rs` says why.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{CudaBuilderError, Result, install};

/// The environment variable that names the device compiler; it is then the only one that is tried.
pub const RUSTC_VAR: &str = "TILEWIRE_DEVICE_RUSTC";
/// The oldest compiler, as major and minor version, whose LLVM is known to build these kernels.
pub const MIN_VERSION: (u32, u32) = (1, 95);

/// The target that device code is built for.
pub(crate) const TARGET: &str = "nvptx64-nvidia-cuda";

/// Where `core` for the device comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Core {
    /// The toolchain has it compiled.
    Prebuilt,
    /// The toolchain has the library's sources, in this folder.
    Sources(PathBuf),
}

/// A compiler that can build device code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// The compiler itself, not a proxy.
    pub rustc: PathBuf,
    /// Where its `core` comes from.
    pub core: Core,
    /// Its version, and that of its LLVM, in words: `rustc 1.96.0, LLVM 22.1.8`.
    pub version: String,
    number: (u32, u32, u32),
}

impl Toolchain {
    /// The toolchain to use: the one that [`RUSTC_VAR`] names, else the newest of rustup's, the one on `PATH` and the
    /// distribution's.
    pub fn find() -> Result<Self> {
        if let Some(rustc) = env::var_os(RUSTC_VAR).filter(|value| !value.is_empty()) {
            return Self::of_rustc(Path::new(&rustc)).map_err(|error| match error {
                CudaBuilderError::Toolchain { rustc, reason } => {
                    let reason = format!("{reason} ({RUSTC_VAR} names it; to install another: {})", install());
                    CudaBuilderError::Toolchain { rustc, reason }
                }
                other => other,
            });
        }
        let mut found: Vec<Self> = Vec::new();
        let mut looked = Vec::new();
        for rustc in candidates() {
            match Self::of_rustc(&rustc) {
                Ok(toolchain) if found.iter().all(|other| other.rustc != toolchain.rustc) => found.push(toolchain),
                Ok(_) => {}
                Err(CudaBuilderError::Toolchain { rustc, reason }) => {
                    looked.push(format!("{}: {reason}", rustc.display()));
                }
                Err(error) => return Err(error),
            }
        }
        // A release comes before a nightly of a higher number: nightlies change under one's feet.
        found.sort_by_key(|toolchain| (!toolchain.is_prerelease(), toolchain.number));
        looked.dedup();
        found.pop().ok_or(CudaBuilderError::NoToolchain { looked })
    }

    /// The toolchain of the compiler `rustc`, which may be a proxy.
    pub fn of_rustc(rustc: &Path) -> Result<Self> {
        let sysroot = PathBuf::from(ask(rustc, &["--print", "sysroot"])?.trim());
        let own = sysroot.join("bin").join(format!("rustc{}", env::consts::EXE_SUFFIX));
        let rustc = if own.is_file() { own } else { rustc.to_path_buf() };
        let (number, version) = parse_version(&ask(&rustc, &["-vV"])?).ok_or_else(|| CudaBuilderError::Toolchain {
            rustc: rustc.clone(),
            reason: "does not say its version, so it cannot be told whether it is recent enough".to_string(),
        })?;
        let refuse = |reason| Err(CudaBuilderError::Toolchain { rustc: rustc.clone(), reason });
        if (number.0, number.1) < MIN_VERSION {
            return refuse(format!("is {version}, but device code needs {}.{} or later", MIN_VERSION.0, MIN_VERSION.1));
        }
        let lib = sysroot.join("lib").join("rustlib");
        let sources = lib.join("src").join("rust").join("library");
        let core = if has_prebuilt_core(&lib.join(TARGET).join("lib")) {
            Core::Prebuilt
        } else if sources.join("core").join("src").join("lib.rs").is_file() {
            Core::Sources(sources)
        } else {
            return refuse(format!("is {version}, but has neither the target {TARGET} nor the library's sources"));
        };
        Ok(Self { rustc, core, version, number })
    }

    fn is_prerelease(&self) -> bool {
        self.version.contains("-nightly") || self.version.contains("-beta") || self.version.contains("-dev")
    }
}

/// A command that starts `rustc` without what a surrounding cargo, clippy or rustup left in the environment: their
/// variables would change the PTX, or make the compiler call another.
pub(crate) fn clean_command(rustc: &Path) -> Command {
    let mut command = Command::new(rustc);
    for (key, _) in env::vars_os() {
        let name = key.to_string_lossy();
        if ["CARGO", "RUST", "CLIPPY"].iter().any(|prefix| name.starts_with(prefix)) && name != "RUSTUP_HOME" {
            command.env_remove(key);
        }
    }
    command
}

fn ask(rustc: &Path, args: &[&str]) -> Result<String> {
    let refuse = |reason| CudaBuilderError::Toolchain { rustc: rustc.to_path_buf(), reason };
    let output =
        clean_command(rustc).args(args).output().map_err(|error| refuse(format!("does not start: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(refuse(format!("`{}` failed: {}", args.join(" "), said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn candidates() -> Vec<PathBuf> {
    let rustc = format!("rustc{}", env::consts::EXE_SUFFIX);
    let rustup = env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".rustup")));
    let mut found = Vec::new();
    if let Some(entries) = rustup.and_then(|home| home.join("toolchains").read_dir().ok()) {
        found.extend(entries.flatten().map(|entry| entry.path().join("bin").join(&rustc)));
        found.sort();
    }
    found.extend(env::var_os("PATH").iter().flat_map(env::split_paths).map(|folder| folder.join(&rustc)));
    // rustup's proxy may hide the distribution's compiler on PATH, and a bare environment may lack PATH.
    found.push(Path::new("/usr/bin").join(&rustc));
    found.retain(|path| path.is_file());
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found
}

fn has_prebuilt_core(lib: &Path) -> bool {
    let entries = lib.read_dir().into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

/// Version number and words from the output of `rustc -vV`.
fn parse_version(text: &str) -> Option<((u32, u32, u32), String)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let release = field("release:")?;
    let mut parts = release.split(['.', '-']).map(|part| part.parse().ok());
    let number = (parts.next()??, parts.next()??, parts.next()??);
    Some((number, format!("rustc {release}, LLVM {}", field("LLVM version:").unwrap_or("unknown"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_with_its_llvm() {
        let text = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(parse_version(text), Some(((1, 96, 0), "rustc 1.96.0, LLVM 22.1.8".to_string())));
        let nightly = "release: 1.97.0-nightly\nLLVM version: 22.1.8\n";
        assert_eq!(parse_version(nightly), Some(((1, 97, 0), "rustc 1.97.0-nightly, LLVM 22.1.8".to_string())));
        assert_eq!(parse_version("rustc, but not as we know it"), None);
    }

    #[test]
    fn a_compiler_that_does_not_start_is_an_error_that_names_it() {
        let error = Toolchain::of_rustc(Path::new("/no/such/rustc")).unwrap_err().to_string();
        assert!(error.starts_with("device compiler /no/such/rustc: does not start"), "{error}");
    }

    #[test]
    fn the_error_without_a_toolchain_names_the_command_that_installs_one() {
        let error = CudaBuilderError::NoToolchain { looked: vec!["rustc: too old".to_string()] }.to_string();
        assert!(error.contains("rustup component add rust-src"), "{error}");
        assert!(error.contains("apt-get install rustc-web rust-web-src"), "{error}");
        assert!(error.contains("rustc: too old"), "{error}");
    }
}
