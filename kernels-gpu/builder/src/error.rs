//! What can go wrong between the device sources and a PTX that may be embedded.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::contract::Violation;

/// The command that installs a device toolchain where rustup has a network.
pub const INSTALL_RUSTUP: &str = "rustup component add rust-src";
/// The command that installs a device toolchain on Debian.
pub const INSTALL_DEBIAN: &str = "apt-get install rustc-web rust-web-src";

/// An error of the builder. Its text says what, with which value, and which rule it breaks.
#[derive(Debug)]
#[non_exhaustive]
pub enum CudaBuilderError {
    /// No compiler on this machine can build for nvptx64.
    NoToolchain {
        /// Every compiler that was looked at, and what it lacks.
        looked: Vec<String>,
    },
    /// A compiler could not be asked, or its answer was not understood.
    Toolchain {
        /// The compiler.
        rustc: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The compiler refused the sources.
    Compile {
        /// Name of the crate that was being compiled.
        crate_name: String,
        /// What the compiler said.
        output: String,
    },
    /// The sources cannot be a device crate.
    Sources {
        /// The folder or file.
        path: PathBuf,
        /// The rule that it breaks.
        rule: String,
    },
    /// The stored PTX does not do, and a fresh one cannot be built.
    Rebuild {
        /// Why the stored PTX does not do.
        because: String,
        /// Why no other can be built.
        source: Box<Self>,
    },
    /// The PTX breaks the contract.
    Contract(Vec<Violation>),
    /// Reading or writing a file failed.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// The commands that install a device toolchain, for messages.
pub(crate) fn install() -> String {
    format!("`{INSTALL_RUSTUP}`; where rustup has no network, on Debian: `{INSTALL_DEBIAN}`")
}

/// A result of the builder.
pub type Result<T, E = CudaBuilderError> = std::result::Result<T, E>;

impl CudaBuilderError {
    /// Turns an I/O error about `path` into one of the builder's.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, source }
    }
}

impl std::error::Error for CudaBuilderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Rebuild { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl fmt::Display for CudaBuilderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoToolchain { looked } => {
                writeln!(f, "no compiler here can build device code for nvptx64-nvidia-cuda")?;
                for line in looked {
                    writeln!(f, "  {line}")?;
                }
                write!(f, "to install one: {}", install())
            }
            Self::Toolchain { rustc, reason } => write!(f, "device compiler {}: {reason}", rustc.display()),
            Self::Rebuild { because, source } => write!(f, "{because}, so it must be built anew, but {source}"),
            Self::Compile { crate_name, output } => {
                write!(f, "compiling {crate_name} for nvptx64-nvidia-cuda failed:\n{}", output.trim_end())
            }
            Self::Sources { path, rule } => write!(f, "{}: {rule}", path.display()),
            Self::Contract(violations) => {
                write!(f, "the PTX breaks its contract in {} places:", violations.len())?;
                for violation in violations {
                    write!(f, "\n  {violation}")?;
                }
                Ok(())
            }
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}
