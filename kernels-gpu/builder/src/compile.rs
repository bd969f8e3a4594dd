//! Compiling a device crate to PTX text.
//!
//! The compiler is called directly. Cargo's `-Zbuild-std` resolves the whole standard library first, which needs a
//! registry for crates that `core` does not use, and Debian packages no vendored copy of them. A device crate has no
//! dependencies, so all that is left for cargo to do is to compile `core`, and one call of the compiler does that.
//!
//! Only `core`'s metadata is made, with the MIR of every function in it: what a kernel uses is inlined from there, and
//! what cannot be inlined is refused by the contract anyway. For the same reason an empty crate stands in for
//! `compiler_builtins`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{CudaBuilderError, Result};
use crate::sources::Fnv;
use crate::toolchain::{Core, TARGET, Toolchain, clean_command};

/// What stands in for `compiler_builtins`.
const NO_BUILTINS: &str = "#![no_std]\n#![feature(compiler_builtins)]\n#![compiler_builtins]\n";

/// One device crate to compile.
pub(crate) struct Job<'a> {
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) crate_name: &'a str,
    pub(crate) crate_dir: &'a Path,
    pub(crate) edition: &'a str,
    /// Flags that change the code that is made, for `core` and the crate alike.
    pub(crate) codegen: &'a [String],
    /// Where intermediate files go; one folder serves all profiles.
    pub(crate) work_dir: &'a Path,
    pub(crate) llvm_ir: Option<&'a Path>,
    pub(crate) deny_warnings: bool,
}

/// What the compiler made.
pub(crate) struct Compiled {
    pub(crate) ptx: String,
    /// What the compiler said, though it succeeded.
    pub(crate) warnings: String,
}

impl Job<'_> {
    pub(crate) fn run(&self) -> Result<Compiled> {
        // Another compiler or other flags are another folder, so nothing stale is ever linked in.
        let key = Fnv::new()
            .field(self.toolchain.version.as_bytes())
            .field(self.toolchain.rustc.as_os_str().as_encoded_bytes());
        let key = self.codegen.iter().fold(key, |key, flag| key.field(flag.as_bytes()));
        let work = self.work_dir.join(key.hex());
        fs::create_dir_all(&work).map_err(CudaBuilderError::io(&work))?;
        // Builds of several profiles may run at once; the lock ends with the file's scope.
        let lock_path = work.join("lock");
        let lock = File::create(&lock_path).map_err(CudaBuilderError::io(&lock_path))?;
        lock.lock().map_err(CudaBuilderError::io(&lock_path))?;

        let externs = match &self.toolchain.core {
            Core::Prebuilt => Vec::new(),
            Core::Sources(library) => self.core(&work, library)?,
        };
        let asm = work.join(format!("{}.s", self.crate_name));
        let mut args = externs;
        if self.deny_warnings {
            args.push("-Dwarnings".into());
        }
        // The PTX must not depend on where the sources lie; what the compiler says should still name real files.
        args.push("--remap-path-scope=object".into());
        let mut remap = OsString::from("--remap-path-prefix=");
        remap.push(self.crate_dir);
        remap.push("=");
        remap.push(self.crate_name);
        args.push(remap);
        let root = self.crate_dir.join("src").join("lib.rs");
        let emit = |what: OsString| {
            let args: Vec<_> = args.iter().cloned().chain([what]).collect();
            self.rustc(self.crate_name, self.edition, &root, &args)
        };
        // Apart from the PTX: asking for both in one call changes the names of constants in it.
        if let Some(path) = self.llvm_ir {
            emit(flag("--emit=llvm-ir=", path))?;
        }
        let warnings = emit(flag("--emit=asm=", &asm))?;
        let ptx = fs::read_to_string(&asm).map_err(CudaBuilderError::io(&asm))?;
        Ok(Compiled { ptx, warnings })
    }

    /// Makes `core` and its stand-in unless they are there, and returns the flags that name them.
    fn core(&self, work: &Path, library: &Path) -> Result<Vec<OsString>> {
        let (core, builtins) = (work.join("libcore.rmeta"), work.join("libcompiler_builtins.rmeta"));
        let core_flag = flag("--extern=noprelude:core=", &core);
        let internal =
            ["-Zforce-unstable-if-unmarked", "-Zunstable-options", "-Zalways-encode-mir", "--cap-lints=allow"];
        let internal = internal.map(OsString::from);
        if !core.is_file() {
            let root = library.join("core").join("src").join("lib.rs");
            self.metadata("core", &root, &core, &internal)?;
        }
        if !builtins.is_file() {
            let root = work.join("no_builtins.rs");
            fs::write(&root, NO_BUILTINS).map_err(CudaBuilderError::io(&root))?;
            let args: Vec<_> = internal.iter().cloned().chain([core_flag.clone()]).collect();
            self.metadata("compiler_builtins", &root, &builtins, &args)?;
        }
        Ok(vec!["-Zunstable-options".into(), core_flag, flag("--extern=noprelude:compiler_builtins=", &builtins)])
    }

    /// Compiles to metadata at `to`, which appears whole or not at all.
    fn metadata(&self, name: &str, root: &Path, to: &Path, args: &[OsString]) -> Result<()> {
        let unfinished = to.with_extension("unfinished");
        let args: Vec<_> = args.iter().cloned().chain([flag("--emit=metadata=", &unfinished)]).collect();
        self.rustc(name, "2024", root, &args)?;
        fs::rename(&unfinished, to).map_err(CudaBuilderError::io(to))
    }

    fn rustc(&self, name: &str, edition: &str, root: &Path, args: &[OsString]) -> Result<String> {
        let rustc = &self.toolchain.rustc;
        let output = clean_command(rustc)
            // Device code needs `abi_ptx` and inline PTX, which stable compilers have but do not yet promise.
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["--crate-name", name, "--edition", edition, "--crate-type=rlib", "--target", TARGET])
            .args(self.codegen)
            .args(args)
            .arg(root)
            .output()
            .map_err(|error| CudaBuilderError::Toolchain {
                rustc: rustc.clone(),
                reason: format!("does not start: {error}"),
            })?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(CudaBuilderError::Compile { crate_name: name.to_string(), output: said })
        }
    }
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

/// The folder for intermediate files that all profiles share, inside the folder that cargo made for build products.
/// `inside` is any path in it: a build script's `OUT_DIR`, or a program that cargo built. Where cargo's folder cannot be
/// told, it is the path's own folder.
pub fn shared_target_dir(inside: &Path) -> PathBuf {
    // Cargo leaves the second always, the first only where it made the folder itself.
    let is_root = |folder: &&Path| [".rustc_info.json", "CACHEDIR.TAG"].iter().any(|mark| folder.join(mark).is_file());
    let own = if inside.is_dir() { inside } else { inside.parent().unwrap_or(inside) };
    inside.ancestors().skip(1).find(is_root).unwrap_or(own).join("device")
}
