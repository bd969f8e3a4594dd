//! A trace drawn over time: one line a barrier, for one CTA.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::trace::{BarrierId, Event, EventKind, Trace};
use crate::kernels::shape::Rank;

impl Trace {
    /// The barriers of one CTA over time, in `columns` columns: `>` when bytes were announced or a first arrival was
    /// made, `|` when a phase completed, and the number of the running phase (its last digit) between.
    pub fn timeline(&self, rank: Rank, launch: usize, cta: u32, columns: usize) -> String {
        let here = |e: &&Event| e.place.rank == rank && e.place.launch == launch && e.place.cta == cta;
        let events: Vec<&Event> = self.events().iter().filter(here).collect();
        let (Some(first), Some(last)) = (events.first(), events.last()) else {
            return format!("rank {} launch {launch} CTA {cta}: no events\n", rank.0);
        };
        let columns = columns.max(1);
        let span = (last.now_ns - first.now_ns).max(1);
        let column = |e: &Event| ((e.now_ns - first.now_ns) * (columns as u64 - 1) / span) as usize;
        let mut lines: BTreeMap<BarrierId, Vec<char>> = BTreeMap::new();
        for event in &events {
            let at = column(event);
            match event.kind {
                EventKind::BarrierInit { bar, .. } => {
                    let mut line = vec![' '; columns];
                    line[at..].fill('0');
                    lines.insert(bar, line);
                }
                EventKind::Arrive { bar, .. } => {
                    if let Some(c) = lines.get_mut(&bar).and_then(|line| line.get_mut(at)).filter(|c| **c != '|') {
                        *c = '>';
                    }
                }
                EventKind::PhaseComplete { bar, phase } => {
                    if let Some(line) = lines.get_mut(&bar) {
                        line[at..].fill(char::from_digit(((phase + 1) % 10) as u32, 10).unwrap_or('?'));
                        line[at] = '|';
                    }
                }
                _ => {}
            }
        }
        let width = lines.keys().map(|bar| bar.to_string().len()).max().unwrap_or(0);
        let mut out = String::new();
        let _ = writeln!(out, "rank {} launch {launch} CTA {cta}, {} to {} ns", rank.0, first.now_ns, last.now_ns);
        for (bar, line) in lines {
            let _ = writeln!(out, "{:width$}  {}", bar.to_string(), line.iter().collect::<String>());
        }
        out
    }
}
