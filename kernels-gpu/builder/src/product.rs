//! tilewire's own kernels: how they are built, and the stored PTX that spares users the device compiler.

use std::path::{Path, PathBuf};
use std::{env, fs};

use tilewire_kernels::entries::ENTRIES;

use crate::contract;
use crate::cuda_builder::{Arch, CudaBuilder};
use crate::error::{CudaBuilderError, Result};
use crate::stored::Stored;

/// Where a PTX came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The stored file, which matches the sources.
    Stored,
    /// A fresh build, for the reason given.
    Built {
        /// Why the stored file did not do.
        because: String,
    },
}

/// Set to 1, this environment variable makes every lane of a warp arrive at barriers, instead of one after the others'
/// accesses: for racecheck, which sees no order otherwise. Such kernels are slower, and never stored.
pub const EVERY_LANE_VAR: &str = "TILEWIRE_EVERY_LANE_ARRIVES";

/// The builder of tilewire's kernels, whose crate lies in `crate_dir`.
pub fn kernels(crate_dir: impl AsRef<Path>) -> CudaBuilder {
    let builder = CudaBuilder::new(crate_dir).arch(Arch::Sm90a).entries(ENTRIES);
    if env::var(EVERY_LANE_VAR).is_ok_and(|value| value == "1") { builder.cfg("every_lane_arrives") } else { builder }
}

/// Where the stored PTX of the crate in `crate_dir` lies.
pub fn stored_path(crate_dir: impl AsRef<Path>) -> PathBuf {
    crate_dir.as_ref().join("ptx").join("kernels.ptx")
}

/// The PTX of the kernels in `crate_dir`: the stored one where it matches the sources, else a fresh one, built with
/// intermediate files in `work_dir`. Either keeps the contract.
pub fn kernels_ptx(crate_dir: &Path, work_dir: &Path) -> Result<(String, Origin)> {
    let builder = kernels(crate_dir).target_dir(work_dir);
    let hash = builder.source_hash()?;
    let path = stored_path(crate_dir);
    let text = fs::read_to_string(&path);
    let because = match text.as_deref().map(Stored::read) {
        Ok(Some(stored)) if stored.hash == hash => {
            let violations = contract::check(stored.ptx, ENTRIES);
            return if violations.is_empty() {
                Ok((stored.ptx.to_string(), Origin::Stored))
            } else {
                Err(CudaBuilderError::Contract(violations))
            };
        }
        Ok(Some(stored)) => format!("{} was made from sources {}, these are {hash}", path.display(), stored.hash),
        Ok(None) => format!("{} does not say which sources it was made from", path.display()),
        Err(error) => format!("{}: {error}", path.display()),
    };
    match builder.build_text() {
        Ok(built) => Ok((built.ptx, Origin::Built { because })),
        Err(source) => Err(CudaBuilderError::Rebuild { because, source: Box::new(source) }),
    }
}
