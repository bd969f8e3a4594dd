//! The builder itself, in the shape of Rust-CUDA's `cuda_builder`.

use std::fs;
use std::path::{Path, PathBuf};

use tilewire_kernels::entries::Entry;

use crate::compile::Job;
use crate::contract;
use crate::error::{CudaBuilderError, Result};
use crate::parameter::read_in_place;
use crate::sources::{self, Fnv};
use crate::stamp::{self, STAMP_VERSION};
use crate::toolchain::Toolchain;

/// The architecture that device code is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arch {
    /// Hopper, with the instructions that only Hopper has (wgmma, setmaxnreg).
    Sm90a,
}

impl Arch {
    const fn cpu(self) -> &'static str {
        match self {
            Self::Sm90a => "sm_90a",
        }
    }
}

/// PTX that keeps the contract, and where it came from.
#[derive(Clone, Debug)]
pub struct Built {
    /// The text.
    pub ptx: String,
    /// The compiler, in words.
    pub compiler: String,
    /// What the compiler warned of; empty when it had nothing to say.
    pub warnings: String,
}

/// Builds a device crate to PTX: compiles it, stamps the entry headers, and checks the contract.
#[derive(Clone, Debug)]
pub struct CudaBuilder {
    crate_dir: PathBuf,
    entries: Vec<Entry>,
    arch: Arch,
    edition: String,
    llvm_args: Vec<String>,
    cfgs: Vec<String>,
    deny_warnings: bool,
    work_dir: Option<PathBuf>,
    copy_to: Option<PathBuf>,
    llvm_ir: Option<PathBuf>,
    toolchain: Option<Toolchain>,
}

impl CudaBuilder {
    /// A builder of the crate in the folder `path`, which holds a `Cargo.toml`. The crate must have no dependencies.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            crate_dir: path.as_ref().to_path_buf(),
            entries: Vec::new(),
            arch: Arch::Sm90a,
            edition: "2024".to_string(),
            llvm_args: Vec::new(),
            cfgs: Vec::new(),
            deny_warnings: false,
            work_dir: None,
            copy_to: None,
            llvm_ir: None,
            toolchain: None,
        }
    }

    /// The kernels that the crate must have: their launch bounds and parameters.
    pub fn entries(mut self, entries: &[Entry]) -> Self {
        self.entries = entries.to_vec();
        self
    }

    /// The architecture to build for; Hopper unless said otherwise.
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// The edition of the crate's source; 2024 unless said otherwise.
    pub fn edition(mut self, edition: &str) -> Self {
        self.edition = edition.to_string();
        self
    }

    /// Options passed to LLVM, such as `-unroll-threshold=100000`.
    pub fn llvm_args(mut self, args: &[&str]) -> Self {
        self.llvm_args = args.iter().map(ToString::to_string).collect();
        self
    }

    /// Sets a configuration flag of the device crate's code, as rustc's `--cfg` does.
    pub fn cfg(mut self, name: &str) -> Self {
        self.cfgs.push(name.to_string());
        self
    }

    /// Makes warnings in code that only the device sees an error.
    pub fn deny_warnings(mut self, deny: bool) -> Self {
        self.deny_warnings = deny;
        self
    }

    /// Where intermediate files go; the crate's `target/device` unless said otherwise.
    pub fn target_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.work_dir = Some(path.as_ref().to_path_buf());
        self
    }

    /// Where [`build`](Self::build) writes the PTX besides.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_path_buf());
        self
    }

    /// Keeps LLVM's intermediate code in the file `path`: the place to look for an `alloca` that survived.
    pub fn keep_llvm_ir(mut self, path: impl AsRef<Path>) -> Self {
        self.llvm_ir = Some(path.as_ref().to_path_buf());
        self
    }

    /// The compiler to use; [`Toolchain::find`]'s unless said otherwise.
    pub fn toolchain(mut self, toolchain: Toolchain) -> Self {
        self.toolchain = Some(toolchain);
        self
    }

    /// The hash of everything that decides what the PTX says, the compiler excepted: sources, entry table, flags,
    /// stamping.
    pub fn source_hash(&self) -> Result<String> {
        let mut hash = Fnv::new().field(&STAMP_VERSION.to_le_bytes()).field(self.crate_name()?.as_bytes());
        hash = hash.field(self.edition.as_bytes());
        for flag in self.codegen() {
            hash = hash.field(flag.as_bytes());
        }
        for entry in &self.entries {
            hash = hash.field(format!("{entry:?}").as_bytes());
        }
        Ok(sources::hash_files(hash, &self.crate_dir.join("src"))?.hex())
    }

    /// Builds the PTX, without writing it anywhere but among the intermediate files.
    pub fn build_text(&self) -> Result<Built> {
        let toolchain = self.toolchain.clone().map_or_else(Toolchain::find, Ok)?;
        let crate_name = self.crate_name()?;
        let codegen = self.codegen();
        let job = Job {
            toolchain: &toolchain,
            crate_name: &crate_name,
            crate_dir: &self.crate_dir,
            edition: &self.edition,
            codegen: &codegen,
            work_dir: &self.work_dir(),
            llvm_ir: self.llvm_ir.as_deref(),
            deny_warnings: self.deny_warnings,
        };
        let compiled = job.run()?;
        let ptx = stamp::stamp(&read_in_place(&stamp::drop_unused_functions(&compiled.ptx)), &self.entries);
        let violations = contract::check(&ptx, &self.entries);
        if violations.is_empty() {
            Ok(Built { ptx, compiler: toolchain.version, warnings: compiled.warnings })
        } else {
            Err(CudaBuilderError::Contract(violations))
        }
    }

    /// Builds the PTX, writes it, and returns where: the place that [`copy_to`](Self::copy_to) named, or a file among
    /// the intermediate ones.
    pub fn build(&self) -> Result<PathBuf> {
        let built = self.build_text()?;
        let path = match &self.copy_to {
            Some(path) => path.clone(),
            None => self.work_dir().join(format!("{}.ptx", self.crate_name()?)),
        };
        fs::write(&path, built.ptx).map_err(CudaBuilderError::io(&path))?;
        Ok(path)
    }

    fn work_dir(&self) -> PathBuf {
        self.work_dir.clone().unwrap_or_else(|| self.crate_dir.join("target").join("device"))
    }

    fn crate_name(&self) -> Result<String> {
        let path = self.crate_dir.join("Cargo.toml");
        let manifest = fs::read_to_string(&path).map_err(CudaBuilderError::io(&path))?;
        let name = sources::package_name(&manifest).map(|name| name.replace('-', "_"));
        name.ok_or_else(|| CudaBuilderError::Sources {
            path,
            rule: "a device crate's manifest has a [package] name".into(),
        })
    }

    fn codegen(&self) -> Vec<String> {
        let mut flags = vec![format!("-Ctarget-cpu={}", self.arch.cpu())];
        flags.extend(["-Copt-level=3", "-Ccodegen-units=1", "-Cpanic=abort"].map(str::to_string));
        flags.extend(self.llvm_args.iter().map(|arg| format!("-Cllvm-args={arg}")));
        flags.extend(self.cfgs.iter().map(|name| format!("--cfg={name}")));
        flags
    }
}
