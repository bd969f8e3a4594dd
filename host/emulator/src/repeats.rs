//! Stores of one agent over another of its own that nothing orders before: no fault if both store the same bytes, since the
//! memory then holds these whichever comes last, and readers wait for both. Whether they do shows when the second lands.

use super::clock::Mark;
use super::engine::Copy;
use super::violation::{Failure, Violation};
use super::world::World;
use crate::kernels::shape::GlobalAddr;

/// Bytes that an agent has stored twice.
#[derive(Debug)]
pub(super) struct Repeat {
    agent: usize,
    addr: u64,
    len: u64,
    /// What the first store to land left.
    first: Option<Vec<u8>>,
}

impl Repeat {
    fn overlaps(&self, agent: usize, (addr, len): (GlobalAddr, u64)) -> bool {
        self.agent == agent && addr.0 < self.addr + self.len && self.addr < addr.0 + len
    }
}

impl World {
    /// Takes down that `mark` stores `len` bytes at `addr` again.
    pub(super) fn note_repeat(&mut self, mark: Mark, addr: u64, len: u64) -> Result<(), Failure> {
        let agent = mark.agent as usize;
        let mut repeat = Repeat { agent, addr, len, first: None };
        let in_flight = self.copies.iter().any(|copy| match copy {
            Copy::Store { agent: of, end, .. } => {
                end.parts(true).into_iter().any(|(addr, len)| repeat.overlaps(*of, (addr, u64::from(len))))
            }
            Copy::Load { .. } => false,
        });
        if !in_flight {
            repeat.first = Some(self.memory.bytes(GlobalAddr(addr), len)?.to_vec());
        }
        self.repeats.push(repeat);
        Ok(())
    }

    /// A store of `agent` has written `len` bytes at `addr`.
    pub(super) fn settle_repeats(&mut self, agent: usize, addr: GlobalAddr, len: u64) -> Result<(), Failure> {
        let mut at = 0;
        while let Some(repeat) = self.repeats.get_mut(at) {
            if !repeat.overlaps(agent, (addr, len)) {
                at += 1;
                continue;
            }
            let bytes = self.memory.bytes(GlobalAddr(repeat.addr), repeat.len)?;
            match &repeat.first {
                None => repeat.first = Some(bytes.to_vec()),
                Some(first) if first == bytes => {
                    self.repeats.swap_remove(at);
                    continue;
                }
                Some(_) => {
                    let (addr, len) = (repeat.addr, repeat.len);
                    let detail = format!(
                        "stores {len} bytes at {addr:#x} over others that it stored there, and nothing orders the two"
                    );
                    return Err(Failure::new(Violation::Race, detail));
                }
            }
            at += 1;
        }
        Ok(())
    }
}
