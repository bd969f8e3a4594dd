//! Shadow memory: for every byte whether it was written, by which access, and who has read it since.
//!
//! Kept as intervals with equal history, because kernels touch memory in whole boxes, panels and rows: exact to the byte,
//! at the price of a few intervals.

use std::collections::BTreeMap;
use std::ops::Range;

use super::clock::{Clock, Mark};

/// Last write of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// Nobody wrote it.
    Empty,
    /// Written before this run: ordered before everything.
    Before,
    /// Written in this run.
    By(Mark),
}

impl Fill {
    fn known_to(&self, clock: &Clock) -> bool {
        match self {
            Fill::Empty | Fill::Before => true,
            Fill::By(mark) => mark.known_to(clock),
        }
    }
}

/// Why an access is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Reads a byte that nobody wrote.
    ReadEmpty { at: u64 },
    /// Reads a byte whose last write is not ordered before the read. `before` is the write that was there earlier.
    ReadUnordered { at: u64, write: Mark, before: Fill },
    /// Writes a byte whose last write is not ordered before this one.
    WriteUnorderedWrite { at: u64, write: Mark },
    /// Writes a byte that was read by an access not ordered before the write.
    WriteUnorderedRead { at: u64, read: Mark },
}

#[derive(Clone, Debug)]
struct Cell {
    fill: Fill,
    before: Fill,
    reads: Vec<Mark>,
}

/// History of one memory of `len` bytes.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    len: u64,
    /// First byte of each interval; an interval ends where the next begins.
    cells: BTreeMap<u64, Cell>,
}

impl Shadow {
    pub(super) fn new(len: u64) -> Self {
        let cell = Cell { fill: Fill::Empty, before: Fill::Empty, reads: Vec::new() };
        Self { len, cells: BTreeMap::from([(0, cell)]) }
    }

    fn split(&mut self, at: u64) {
        if at >= self.len || self.cells.contains_key(&at) {
            return;
        }
        if let Some((_, cell)) = self.cells.range(..at).next_back() {
            let cell = cell.clone();
            self.cells.insert(at, cell);
        }
    }

    /// Records a read by `by`, whose agent knows `clock`. With `lenient`, bytes nobody wrote are no error.
    pub(super) fn read(&mut self, range: Range<u64>, by: Mark, clock: &Clock, lenient: bool) -> Result<(), Conflict> {
        if range.is_empty() {
            return Ok(());
        }
        self.split(range.start);
        self.split(range.end);
        for (&at, cell) in self.cells.range_mut(range) {
            if cell.fill == Fill::Empty && !lenient {
                return Err(Conflict::ReadEmpty { at });
            }
            if let Fill::By(write) = cell.fill
                && !write.known_to(clock)
            {
                return Err(Conflict::ReadUnordered { at, write, before: cell.before });
            }
            // Whoever knows this read will know those that this reader knew: only the others have to be kept.
            cell.reads.retain(|read| read.lane != by.lane && !read.known_to(clock));
            cell.reads.push(by);
        }
        Ok(())
    }

    /// Records a write by `by`, whose agent knows `clock`. Last writes of which `may_repeat` is true need not be ordered before it:
    /// the answer is where there were such.
    pub(super) fn write(
        &mut self,
        range: Range<u64>,
        by: Mark,
        clock: &Clock,
        may_repeat: impl Fn(&Mark) -> bool,
    ) -> Result<Vec<Range<u64>>, Conflict> {
        let mut repeats: Vec<Range<u64>> = Vec::new();
        if range.is_empty() {
            return Ok(repeats);
        }
        self.split(range.start);
        self.split(range.end);
        let mut cells = self.cells.range(range.clone()).peekable();
        while let Some((&at, cell)) = cells.next() {
            if let Some(&read) = cell.reads.iter().find(|read| !read.known_to(clock)) {
                return Err(Conflict::WriteUnorderedRead { at, read });
            }
            if let Fill::By(write) = cell.fill
                && !cell.fill.known_to(clock)
            {
                if !may_repeat(&write) {
                    return Err(Conflict::WriteUnorderedWrite { at, write });
                }
                repeats.push(at..cells.peek().map_or(range.end, |(next, _)| **next));
            }
        }
        self.replace(range, Fill::By(by));
        Ok(repeats)
    }

    /// Makes the range one interval.
    fn replace(&mut self, range: Range<u64>, fill: Fill) {
        let inner: Vec<u64> = self.cells.range(range.start + 1..range.end).map(|(at, _)| *at).collect();
        for at in inner {
            self.cells.remove(&at);
        }
        if let Some(cell) = self.cells.get_mut(&range.start) {
            cell.before = cell.fill;
            cell.fill = fill;
            cell.reads.clear();
        }
    }

    /// The host writes the range, between runs.
    pub(super) fn fill_from_host(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        self.replace(range, Fill::Before);
    }

    /// First byte of the range that nobody wrote.
    pub(super) fn first_empty(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let first = self.cells.range(..=range.start).next_back();
        let rest = self.cells.range(range.start..range.end);
        let empty = first.into_iter().chain(rest).find(|(_, cell)| cell.fill == Fill::Empty);
        empty.map(|(at, _)| *at.max(&range.start))
    }

    /// The host has waited for everything: forgets who read and wrote, keeps what is written.
    pub(super) fn settle(&mut self) {
        let mut last: Option<bool> = None;
        self.cells.retain(|_, cell| {
            let empty = cell.fill == Fill::Empty;
            cell.fill = if empty { Fill::Empty } else { Fill::Before };
            cell.before = cell.fill;
            cell.reads = Vec::new();
            last.replace(empty) != Some(empty)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(lane: u32, clock: u32) -> Mark {
        Mark { lane, clock, agent: lane, issued: clock }
    }

    fn knows(marks: &[(u32, u32)]) -> Clock {
        let mut c = Clock::default();
        marks.iter().for_each(|m| c.raise(m.0, m.1));
        c
    }

    #[test]
    fn a_read_of_bytes_nobody_wrote_names_the_first_of_them() {
        let mut s = Shadow::new(100);
        assert_eq!(s.first_empty(7..9), Some(7));
        s.fill_from_host(0..40);
        assert_eq!(s.read(10..40, mark(1, 1), &knows(&[]), false), Ok(()));
        assert_eq!(s.read(10..41, mark(1, 1), &knows(&[]), false), Err(Conflict::ReadEmpty { at: 40 }));
        assert_eq!(s.read(10..41, mark(1, 1), &knows(&[]), true), Ok(()));
        assert_eq!(s.first_empty(10..40), None);
        assert_eq!(s.first_empty(10..50), Some(40));
    }

    #[test]
    fn an_unordered_read_is_found_before_and_after_the_write() {
        let mut s = Shadow::new(64);
        s.write(0..32, mark(1, 1), &knows(&[]), |_| false).unwrap();
        let conflict = Conflict::ReadUnordered { at: 16, write: mark(1, 1), before: Fill::Empty };
        assert_eq!(s.read(16..20, mark(2, 1), &knows(&[]), false), Err(conflict));
        s.read(16..20, mark(2, 1), &knows(&[(1, 1)]), false).unwrap();
        let conflict = Conflict::WriteUnorderedRead { at: 16, read: mark(2, 1) };
        assert_eq!(s.write(0..32, mark(1, 2), &knows(&[(1, 1)]), |_| false), Err(conflict));
        s.write(0..32, mark(1, 2), &knows(&[(1, 1), (2, 1)]), |_| false).unwrap();
    }

    #[test]
    fn two_unordered_writes_conflict() {
        let mut s = Shadow::new(64);
        s.write(0..32, mark(1, 1), &knows(&[]), |_| false).unwrap();
        let conflict = Conflict::WriteUnorderedWrite { at: 31, write: mark(1, 1) };
        assert_eq!(s.write(31..40, mark(2, 1), &knows(&[]), |_| false), Err(conflict));
        s.write(32..40, mark(2, 1), &knows(&[]), |_| false).unwrap();
    }

    #[test]
    fn readers_that_do_not_know_each_other_are_all_remembered() {
        let mut s = Shadow::new(8);
        s.fill_from_host(0..8);
        s.read(0..8, mark(1, 1), &knows(&[]), false).unwrap();
        s.read(0..8, mark(2, 1), &knows(&[]), false).unwrap();
        assert!(s.write(0..8, mark(3, 1), &knows(&[(1, 1)]), |_| false).is_err());
        assert!(s.write(0..8, mark(3, 1), &knows(&[(2, 1)]), |_| false).is_err());
        s.write(0..8, mark(3, 1), &knows(&[(1, 1), (2, 1)]), |_| false).unwrap();
    }

    #[test]
    fn settling_keeps_what_is_written_and_forgets_by_whom() {
        let mut s = Shadow::new(64);
        s.write(8..16, mark(1, 1), &knows(&[]), |_| false).unwrap();
        s.write(16..24, mark(2, 1), &knows(&[]), |_| false).unwrap();
        s.settle();
        assert_eq!(s.cells.len(), 3);
        assert_eq!((s.first_empty(8..24), s.first_empty(0..24), s.first_empty(8..25)), (None, Some(0), Some(24)));
        s.write(0..64, mark(3, 1), &knows(&[]), |_| false).unwrap();
    }
}
