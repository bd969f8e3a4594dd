//! Faults on a GPU: a rank that does not come, words of the protocol that are wrong, and what must go on afterwards.

mod announced;
#[path = "../common/mod.rs"]
mod common;
mod corrupted;
#[path = "../gpu_support/mod.rs"]
mod gpu_support;
mod lifetime;
mod starved;

use std::process::ExitCode;
use std::time::Duration;

use tilewire::Error;
use tilewire::kernels::abi::{FaultRecord, WaitKind};
use tilewire::kernels::shape::Role;

/// Deadline of plans that are to fault.
pub const DEADLINE: Duration = Duration::from_millis(300);

/// Streams that wait for a word block those that share their hardware queue: give every stream one of its own.
pub const QUEUES: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

/// The record of the fault that `result` must be, and its text.
fn fault_of(result: Result<(), Error>) -> Result<(FaultRecord, String), String> {
    let fault = match result {
        Err(Error::Fault(fault)) => fault,
        Err(other) => return Err(format!("not a fault: {other}")),
        Ok(()) => return Err("no fault was reported".to_string()),
    };
    let (op, shown) = (fault.op, fault.to_string());
    common::expect_eq("op", op, "gemm_reduce_scatter")?;
    let record = fault.record.ok_or_else(|| format!("no record: {shown}"))?;
    common::expect_eq("state", record.state, 1)?;
    common::expect_text(&shown, &[op, &format!("rank {}, CTA {}, ", record.rank, record.cta), " waited ", " s for "])?;
    let elapsed = Duration::from_nanos(record.elapsed_ns);
    // The clock of the kernels ticks every 2¹⁶ ns.
    if elapsed + Duration::from_micros(66) < DEADLINE || elapsed > DEADLINE + Duration::from_secs(1) {
        return Err(format!("the wait ended after {elapsed:?}, the deadline is {DEADLINE:?}: {shown}"));
    }
    Ok((record, shown))
}

/// What a record must say: rank, role, kind, index, awaited and seen.
#[derive(Debug, PartialEq)]
struct Waited {
    rank: u32,
    role: Option<Role>,
    kind: Option<WaitKind>,
    index: u32,
    awaited: u32,
    seen: u32,
}

impl Waited {
    fn of(record: &FaultRecord) -> Self {
        let FaultRecord { rank, index, awaited, seen, .. } = *record;
        Self {
            rank,
            role: Some(Role::from_code(record.role)),
            kind: WaitKind::from_code(record.kind),
            index,
            awaited,
            seen,
        }
    }
}

fn main() -> ExitCode {
    common::suite_main([starved::TESTS, corrupted::TESTS, announced::TESTS, lifetime::TESTS].concat())
}
