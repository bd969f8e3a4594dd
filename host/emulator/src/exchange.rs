//! Rows that go from rank to rank as flagged words.
//!
//! Whoever finds a word with its flag has its data and knows of its store, and of nothing else that the sender did: words are
//! relaxed, so each passes on only its place in the sender's lane of words.

use super::access::Proxy;
use super::agent::Agent;
use super::clock::Mark;
use super::mma::Panel;
use super::tensor::{decode, encode};
use super::violation::{Failure, Violation};
use super::world::{AgentLane, Look, World};
use crate::kernels::config::{Element, PANEL_ROWS, ROW_BYTES, TileConfig};
use crate::kernels::layout::flagged::{
    FlaggedRows, LANE_WORDS, PLANE_ROW_BYTES, PLANES, QUAD, WORD_BYTES, WORDS_AT_ONCE, word_col,
};
use crate::kernels::machine::{ExchangeRows, RowsOut};
use crate::kernels::shape::GlobalAddr;

impl<C: TileConfig> ExchangeRows<C> for Agent<'_> {
    fn send_rows(&self, rows: &FlaggedRows, panel: &Panel, epoch: u32) {
        // In two steps, so that looks find some words without the others.
        let early = FlaggedRows { rows: rows.rows / 2, ..*rows };
        let late = FlaggedRows {
            first: rows.first + early.rows,
            rows: rows.rows - early.rows,
            chunk_row: rows.chunk_row + early.rows,
            ..*rows
        };
        for part in [early, late] {
            self.op(|w, me| w.send_rows(me, rows, &part, panel, C::OUT, epoch));
        }
    }

    fn take_rows(&self, rows: &FlaggedRows, epoch: u32) -> Result<Panel, u32> {
        self.look_op(|w, me| w.take_rows(me, rows, C::OUT, epoch))
    }

    fn store_rows(&self, out: &RowsOut, panel: &Panel) {
        self.op(|w, me| w.store_rows(me, out, panel, C::OUT));
    }
}

/// The bytes of `rows` in each plane.
fn planes(rows: &FlaggedRows) -> impl Iterator<Item = (GlobalAddr, u64)> {
    let (first, rows, plane_bytes) = (rows.at(rows.first, 0), rows.rows, rows.plane_bytes());
    (0..u64::from(PLANES)).map(move |plane| (first.plus(plane * plane_bytes), u64::from(rows * PLANE_ROW_BYTES)))
}

/// Where each word of a row lies, and the panel's column of its first element.
fn words(rows: &FlaggedRows, row: u32, element: Element) -> impl Iterator<Item = (GlobalAddr, usize)> {
    let (rows, bytes) = (*rows, element.bytes());
    (0..QUAD).flat_map(move |lane| {
        (0..LANE_WORDS).map(move |word| {
            let plane = u64::from(word / WORDS_AT_ONCE) * rows.plane_bytes();
            let at = rows.at(row, lane).plus(plane + u64::from(word % WORDS_AT_ONCE * WORD_BYTES));
            (at, word_col(lane, word, bytes) as usize)
        })
    })
}

impl World {
    fn check_rows(&self, me: usize, rows: &FlaggedRows, what: &str) -> Result<(), Failure> {
        self.must_be_warpgroup(me, what)?;
        if rows.first + rows.rows > PANEL_ROWS || rows.chunk_row + rows.rows > rows.plane_rows {
            let detail = format!("{what} of rows {rows:?}, more than a panel or a plane has");
            return Err(Failure::new(Violation::OutOfBounds, detail));
        }
        if !rows.base.0.is_multiple_of(u64::from(WORDS_AT_ONCE * WORD_BYTES)) {
            return Err(Failure::new(Violation::Misaligned, format!("{what} at {:#x}", rows.base.0)));
        }
        Ok(())
    }

    /// Stores `part` of `all`.
    fn send_rows(
        &mut self,
        me: usize,
        all: &FlaggedRows,
        part: &FlaggedRows,
        panel: &Panel,
        element: Element,
        epoch: u32,
    ) -> Result<(), Failure> {
        self.check_rows(me, all, "send_rows")?;
        let a = &mut self.agents[me];
        a.words_sent += 1;
        let (number, lane) = (a.words_sent, a.lane(AgentLane::Words));
        let mark = Mark { lane, clock: number, agent: me as u32, issued: a.now };
        for (at, bytes) in planes(part) {
            self.global_write(at, bytes, mark, Proxy::Generic)?;
        }
        self.agents[me].learn(AgentLane::Words, number);
        let (row_cols, elements) = (panel.0.len() / PANEL_ROWS as usize, (4 / element.bytes()) as usize);
        for row in part.first..part.first + part.rows {
            for (at, col) in words(part, row, element) {
                let first = row as usize * row_cols + col;
                let mut bytes = Vec::with_capacity(WORD_BYTES as usize);
                encode(&panel.0[first..first + elements], element, &mut bytes);
                bytes.extend(epoch.to_le_bytes());
                self.memory.bytes_mut(at, u64::from(WORD_BYTES))?.copy_from_slice(&bytes);
            }
        }
        let word = self.memory.words.entry(all.at(all.first, 0).0).or_default();
        word.released.raise(lane, number);
        word.version += 1;
        let waiters = std::mem::take(&mut word.waiters);
        self.wake_all(waiters);
        Ok(())
    }

    fn take_rows(
        &mut self,
        me: usize,
        rows: &FlaggedRows,
        element: Element,
        epoch: u32,
    ) -> Result<Result<Panel, u32>, Failure> {
        self.check_rows(me, rows, "take_rows")?;
        for (at, bytes) in planes(rows) {
            self.memory.written_bytes(at, bytes)?;
        }
        let row_cols = (ROW_BYTES / element.bytes()) as usize;
        let elements = (4 / element.bytes()) as usize;
        // The other rows are unspecified.
        let mut panel = vec![f32::NAN; PANEL_ROWS as usize * row_cols];
        let mut other = None;
        for row in rows.first..rows.first + rows.rows {
            for (at, col) in words(rows, row, element) {
                let bytes = self.memory.bytes(at, u64::from(WORD_BYTES))?;
                let flag = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                other = other.or((flag != epoch).then_some(flag));
                let first = row as usize * row_cols + col;
                decode(&bytes[..4], element, &mut panel[first..first + elements]);
            }
        }
        let first = rows.at(rows.first, 0);
        let word = self.memory.words.entry(first.0).or_default();
        let (version, known) = (word.version, word.released.clone());
        self.look(me, Look::Word(first.0), version);
        if let Some(flag) = other {
            return Ok(Err(flag));
        }
        self.agents[me].view.generic.join(&known);
        let mark = self.own_mark(me);
        for (at, bytes) in planes(rows) {
            self.global_read(at, bytes, mark, Proxy::Generic)?;
        }
        Ok(Ok(Panel(panel)))
    }

    fn store_rows(&mut self, me: usize, out: &RowsOut, panel: &Panel, element: Element) -> Result<(), Failure> {
        self.must_be_warpgroup(me, "store_rows")?;
        let row_cols = panel.0.len() / PANEL_ROWS as usize;
        let cols = (out.cols as usize).min(row_cols);
        if out.first + out.rows > PANEL_ROWS || !out.dst.0.is_multiple_of(16) || !out.stride.is_multiple_of(16) {
            let detail = format!("stores rows {out:?}, more than a panel has or not in steps of 16 bytes");
            return Err(Failure::new(Violation::OutOfBounds, detail));
        }
        let rows = panel.0.chunks_exact(row_cols).skip(out.first as usize).take(out.rows as usize);
        let rows = rows.map(|row| &row[..cols]);
        self.store_finished(me, rows, out.finish.as_ref(), (out.dst, out.stride), element)
    }
}
