//! Faults: waits inside kernels that passed their deadline.

use std::fmt;

use crate::kernels::abi::{FaultRecord, WaitKind};
use crate::kernels::shape::Role;

/// A wait inside a kernel that passed its deadline, as the kernel recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The op whose kernel gave up.
    pub op: &'static str,
    /// Who waited for what; `None` if a kernel left without a record.
    pub record: Option<FaultRecord>,
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(r) = &self.record else {
            return write!(f, "{}: a kernel was aborted and left no record", self.op);
        };
        let role = match Role::from_code(r.role) {
            Role::Producer => "producer".to_string(),
            Role::Storer => "storer".to_string(),
            Role::Loader => "loader".to_string(),
            Role::Consumer(idx) => format!("consumer {idx}"),
        };
        write!(
            f,
            "{}: rank {}, CTA {}, {role} waited {:.3} s for ",
            self.op,
            r.rank,
            r.cta,
            r.elapsed_ns as f64 * 1e-9
        )?;
        let (rank, tile) = (r.index >> 24, r.index & 0xFF_FFFF);
        match WaitKind::from_code(r.kind) {
            Some(WaitKind::Signal) => {
                write!(f, "rank {rank}'s partial of tile {tile}: epoch {}, seen {}", r.awaited, r.seen)
            }
            Some(WaitKind::Staged) => {
                write!(f, "tile {tile} for rank {rank} to be staged: epoch {}, seen {}", r.awaited, r.seen)
            }
            Some(WaitKind::Credit) => {
                write!(f, "rank {}'s credit: epoch {}, seen {}", r.index, r.awaited, r.seen)
            }
            Some(WaitKind::Share) => {
                write!(f, "part {} of the tiles that are cut along K: word {}, seen {}", r.index, r.awaited, r.seen)
            }
            Some(kind) => write!(f, "{kind:?} {}: phase parity {}", r.index, r.awaited),
            None => write!(f, "an unknown thing ({}), index {}", r.kind, r.index),
        }
    }
}
