//! The events of one CTA, each with the state in which it leaves its barrier.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::emulator::{BarrierId, EventKind, Trace};
use crate::kernels::shape::Rank;

/// An mbarrier as the events so far leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BarrierState {
    phase: u64,
    arrivals: u32,
    pending: u32,
    expected: i64,
}

/// One line for each event of the CTA. Events on a barrier show its phase, its arrivals and the bytes still expected.
pub fn follow(trace: &Trace, rank: Rank, launch: usize, cta: u32) -> String {
    let mut barriers: BTreeMap<BarrierId, BarrierState> = BTreeMap::new();
    let mut out = String::new();
    let here = |p: &crate::emulator::Place| p.rank == rank && p.launch == launch && p.cta == cta;
    for event in trace.events().iter().filter(|e| here(&e.place)) {
        let at = match event.kind {
            EventKind::BarrierInit { bar, arrivals } => {
                barriers.insert(bar, BarrierState { phase: 0, arrivals, pending: arrivals, expected: 0 });
                Some(bar)
            }
            EventKind::Arrive { bar, count, bytes } => {
                if let Some(b) = barriers.get_mut(&bar) {
                    b.pending = b.pending.saturating_sub(count);
                    b.expected += i64::from(bytes);
                }
                Some(bar)
            }
            EventKind::LoadLanded { bar, bytes, .. } => {
                if let Some(b) = barriers.get_mut(&bar) {
                    b.expected -= i64::from(bytes);
                }
                Some(bar)
            }
            EventKind::PhaseComplete { bar, phase } => {
                if let Some(b) = barriers.get_mut(&bar) {
                    (b.phase, b.pending, b.expected) = (phase + 1, b.arrivals, 0);
                }
                Some(bar)
            }
            _ => None,
        };
        let _ = write!(out, "{:>7}  {event}", event.step);
        if let Some(b) = at.and_then(|bar| barriers.get(&bar)) {
            let arrived = b.arrivals - b.pending;
            let _ = write!(out, "  [phase {}: {arrived} of {} arrived", b.phase, b.arrivals);
            let _ = write!(out, ", {} bytes expected]", b.expected);
        }
        let _ = writeln!(out);
    }
    out
}
