//! What can go wrong, with the argument, the value and the rule in each case.

use std::fmt::Display;

use crate::compare::{BitDifference, Report};
use crate::fault::Fault;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. Nothing is lost or left unusable by one, unless its text says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument breaks a rule.
    #[error("{argument} is {value}, but {rule}")]
    Argument {
        /// Name of the argument, as the caller knows it.
        argument: String,
        /// Its value.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// Ranks passed different values for something that must be equal.
    #[error("ranks disagree on {argument}: rank {rank} has {value}, rank 0 has {expected}")]
    RanksDisagree {
        /// Name of the argument.
        argument: String,
        /// First rank that differs from rank 0.
        rank: usize,
        /// Its value.
        value: String,
        /// Rank 0's value.
        expected: String,
    },
    /// CUDA is not there, or what is there cannot run these kernels.
    #[error("no usable GPU: {found}; needed: {needed}")]
    NoGpu {
        /// What was found.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// A call to the CUDA driver, cuBLASLt or NCCL failed.
    #[error("{call} failed: {code} ({text})")]
    Driver {
        /// The call.
        call: &'static str,
        /// Its error, by name.
        code: String,
        /// What the library says about it.
        text: String,
    },
    /// A kernel gave up a wait; every rank has left the call.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
    /// The emulator found the kernels breaking a rule of the machine.
    #[error("emulator: {0}")]
    Emulator(#[from] crate::emulator::EmulatorError),
    /// A model file cannot be used.
    #[error("{path}: {reason}")]
    Model {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A result is further from its reference than its tolerance allows.
    #[error("wrong result: {0}")]
    Mismatch(Box<Report>),
    /// Two results that must be the same bits are not.
    #[error("bits differ: {0}")]
    BitsDiffer(Box<BitDifference>),
    /// Reading or writing a file failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Error {
    /// An argument with its value and the rule that it breaks.
    pub fn argument(argument: impl Into<String>, value: impl Display, rule: impl Into<String>) -> Self {
        Self::Argument { argument: argument.into(), value: value.to_string(), rule: rule.into() }
    }
}
