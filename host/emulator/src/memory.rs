//! Global memory of all ranks: allocations far apart, and words that agents share.

use std::collections::HashMap;
use std::ops::Range;

use super::clock::Clock;
use super::shadow::Shadow;
use super::violation::{Failure, Violation};
use crate::kernels::shape::{GlobalAddr, Rank};

/// Distance between the first bytes of neighbouring allocations, if they are small: an overrun hits nothing.
const STRIDE: u64 = 1 << 32;

/// One allocation.
pub(super) struct Allocation {
    pub(super) rank: Rank,
    pub(super) name: String,
    base: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) shadow: Shadow,
}

/// At which scope a word was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Gpu,
    Sys,
}

/// A word that agents use for signals.
#[derive(Default)]
pub(super) struct Word {
    /// What its last release published. To the copy engine of whoever acquires it, only a proxy fence makes it known.
    pub(super) released: Clock,
    /// Who wrote it last in this run, and how.
    pub(super) writer: Option<(Rank, Scope)>,
    /// Number of writes.
    pub(super) version: u64,
    /// Agents blocked until it changes, with the generation of their wait.
    pub(super) waiters: Vec<(usize, u64)>,
}

/// Global memory.
#[derive(Default)]
pub(super) struct GlobalMemory {
    allocations: Vec<Allocation>,
    next_base: u64,
    pub(super) words: HashMap<u64, Word>,
}

impl GlobalMemory {
    pub(super) fn alloc(&mut self, rank: Rank, bytes: usize, name: String) -> GlobalAddr {
        let base = self.next_base.max(STRIDE);
        self.next_base = (base + bytes as u64).next_multiple_of(STRIDE) + STRIDE;
        let shadow = Shadow::new(bytes as u64);
        // Unwritten bytes are NaNs in every element type, should they get through all the same.
        self.allocations.push(Allocation { rank, name, base, bytes: vec![0xFF; bytes], shadow });
        GlobalAddr(base)
    }

    /// The allocation that holds the range, and the range in it.
    pub(super) fn find(&self, addr: GlobalAddr, len: u64) -> Result<(usize, Range<u64>), Failure> {
        let above = self.allocations.partition_point(|a| a.base <= addr.0);
        let fail = |detail: String| Err(Failure::new(Violation::OutOfBounds, detail));
        let Some(idx) = above.checked_sub(1) else {
            return fail(format!("{len} bytes at {:#x} lie in no allocation", addr.0));
        };
        let a = &self.allocations[idx];
        let off = addr.0 - a.base;
        match off.checked_add(len) {
            Some(end) if end <= a.bytes.len() as u64 => Ok((idx, off..end)),
            _ => fail(format!(
                "{len} bytes at {:#x} lie outside every allocation; the one before is {} of rank {}, {} bytes, and this is \
                 its offset {off}",
                addr.0,
                a.name,
                a.rank.0,
                a.bytes.len()
            )),
        }
    }

    pub(super) fn allocation(&mut self, idx: usize) -> &mut Allocation {
        &mut self.allocations[idx]
    }

    pub(super) fn rank_of(&self, addr: GlobalAddr) -> Option<Rank> {
        self.find(addr, 1).ok().map(|(idx, _)| self.allocations[idx].rank)
    }

    /// Bytes of a range, without any check but its bounds.
    pub(super) fn bytes(&self, addr: GlobalAddr, len: u64) -> Result<&[u8], Failure> {
        let (idx, range) = self.find(addr, len)?;
        Ok(&self.allocations[idx].bytes[range.start as usize..range.end as usize])
    }

    pub(super) fn bytes_mut(&mut self, addr: GlobalAddr, len: u64) -> Result<&mut [u8], Failure> {
        let (idx, range) = self.find(addr, len)?;
        Ok(&mut self.allocations[idx].bytes[range.start as usize..range.end as usize])
    }

    /// The bytes of a range, all of which somebody must have written.
    pub(super) fn written_bytes(&self, addr: GlobalAddr, len: u64) -> Result<&[u8], Failure> {
        let (idx, range) = self.find(addr, len)?;
        let a = &self.allocations[idx];
        if let Some(at) = a.shadow.first_empty(range.clone()) {
            let detail = format!("byte {at} of {} (rank {}) is read, but nobody wrote it", a.name, a.rank.0);
            return Err(Failure::new(Violation::ReadOfUnwrittenGlobal, detail));
        }
        Ok(&a.bytes[range.start as usize..range.end as usize])
    }

    pub(super) fn write_from_host(&mut self, addr: GlobalAddr, data: &[u8]) -> Result<(), Failure> {
        self.bytes_mut(addr, data.len() as u64)?.copy_from_slice(data);
        self.mark_written(addr, data.len() as u64)
    }

    pub(super) fn mark_written(&mut self, addr: GlobalAddr, len: u64) -> Result<(), Failure> {
        let (idx, range) = self.find(addr, len)?;
        self.allocations[idx].shadow.fill_from_host(range);
        Ok(())
    }

    /// A word, which must be aligned and written.
    pub(super) fn word(&self, addr: GlobalAddr) -> Result<u32, Failure> {
        if !addr.0.is_multiple_of(4) {
            return Err(Failure::new(Violation::Misaligned, format!("word at {:#x} is not 4-byte aligned", addr.0)));
        }
        let bytes = self.written_bytes(addr, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Where an address is, for reports.
    pub(super) fn describe(&self, addr: GlobalAddr) -> String {
        match self.find(addr, 1) {
            Ok((idx, range)) => {
                format!("{} (rank {}) + {}", self.allocations[idx].name, self.allocations[idx].rank.0, range.start)
            }
            Err(_) => format!("{:#x}", addr.0),
        }
    }

    /// The host has waited for everything.
    pub(super) fn settle(&mut self) {
        self.words.clear();
        self.allocations.iter_mut().for_each(|a| a.shadow.settle());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overrun_of_a_few_bytes_hits_no_neighbour() {
        let mut m = GlobalMemory::default();
        let a = m.alloc(Rank(0), 64, "a".into());
        let b = m.alloc(Rank(1), 64, "b".into());
        assert!(m.find(a, 64).is_ok() && m.find(b.plus(63), 1).is_ok());
        for (addr, len) in [(a, 65), (a.plus(64), 32), (GlobalAddr(b.0 - 32), 32), (GlobalAddr(0), 1), (b, u64::MAX)] {
            assert_eq!(m.find(addr, len).unwrap_err().violation, Violation::OutOfBounds);
        }
    }

    #[test]
    fn a_word_must_be_aligned_and_written() {
        let mut m = GlobalMemory::default();
        let a = m.alloc(Rank(0), 8, "a".into());
        assert_eq!(m.word(a.plus(2)).unwrap_err().violation, Violation::Misaligned);
        assert_eq!(m.word(a).unwrap_err().violation, Violation::ReadOfUnwrittenGlobal);
        m.write_from_host(a, &7u32.to_le_bytes()).unwrap();
        assert_eq!(m.word(a).unwrap(), 7);
    }
}
