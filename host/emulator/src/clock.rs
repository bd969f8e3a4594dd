//! Who knows of what: vector clocks for the happens-before relation.
//!
//! A *lane* is one sequence of accesses that become known in order. Each agent has five (its own accesses, its bulk
//! stores' reads, their writes, the reads of its wgmma groups, and its flagged words), because the copy engine and the
//! tensor cores run beside the agent and are waited for separately, and words are known to whoever finds them. Each
//! mbarrier has one: the copies that complete on it become known phase by phase. Clocks are sparse, so that an agent
//! pays only for what it has heard of.

/// Number of a lane.
pub(super) type Lane = u32;

/// For each lane, up to which access it is known; lanes not listed are at 0. Sorted by lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<(Lane, u32)>);

impl Clock {
    pub(super) fn get(&self, lane: Lane) -> u32 {
        match self.0.binary_search_by_key(&lane, |e| e.0) {
            Ok(at) => self.0[at].1,
            Err(_) => 0,
        }
    }

    pub(super) fn raise(&mut self, lane: Lane, to: u32) {
        match self.0.binary_search_by_key(&lane, |e| e.0) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(to),
            Err(at) => self.0.insert(at, (lane, to)),
        }
    }

    /// Learns everything that `other` knows.
    pub(super) fn join(&mut self, other: &Clock) {
        // Most joins bring only newer entries of known lanes: no new vector for those.
        let mut mine = 0;
        let mut missing = 0;
        for &(lane, clock) in &other.0 {
            while mine < self.0.len() && self.0[mine].0 < lane {
                mine += 1;
            }
            match self.0.get_mut(mine) {
                Some(entry) if entry.0 == lane => entry.1 = entry.1.max(clock),
                _ => missing += 1,
            }
        }
        if missing == 0 {
            return;
        }
        let mut merged = Vec::with_capacity(self.0.len() + missing);
        let mut old = self.0.iter().copied().peekable();
        for &(lane, clock) in &other.0 {
            while let Some(entry) = old.next_if(|e| e.0 < lane) {
                merged.push(entry);
            }
            merged.push(old.next_if(|e| e.0 == lane).unwrap_or((lane, clock)));
        }
        merged.extend(old);
        self.0 = merged;
    }
}

/// What one agent knows, and what passes with a release: for its own accesses, and for its copies of global memory,
/// which hear of nothing before a proxy fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) generic: Clock,
    pub(super) bulk: Clock,
}

impl View {
    pub(super) fn join(&mut self, other: &View) {
        self.generic.join(&other.generic);
        self.bulk.join(&other.bulk);
    }

    /// A kernel boundary or a CTA-wide start: orders every proxy.
    pub(super) fn join_fenced(&mut self, other: &View) {
        self.join(other);
        self.bulk.join(&other.generic);
    }
}

/// One access, as shadow memory remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Lane and place in it. The access is known to whoever's clock has reached that place.
    pub(super) lane: Lane,
    pub(super) clock: u32,
    /// Agent that made or issued the access, and its own clock at that time.
    pub(super) agent: u32,
    pub(super) issued: u32,
}

impl Mark {
    pub(super) fn known_to(&self, clock: &Clock) -> bool {
        clock.get(self.lane) >= self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(entries: &[(Lane, u32)]) -> Clock {
        let mut c = Clock::default();
        entries.iter().for_each(|e| c.raise(e.0, e.1));
        c
    }

    #[test]
    fn a_join_is_the_maximum_of_each_lane() {
        type Entries = &'static [(Lane, u32)];
        let cases: &[(Entries, Entries)] = &[
            (&[], &[(1, 1)]),
            (&[(1, 5), (3, 1)], &[(1, 4), (2, 7), (3, 2), (9, 1)]),
            (&[(5, 1)], &[(1, 1), (5, 2)]),
            (&[(1, 1), (2, 2)], &[(2, 1)]),
            (&[(7, 7)], &[]),
        ];
        for (a, b) in cases {
            let (mut ab, mut ba) = (clock(a), clock(b));
            ab.join(&clock(b));
            ba.join(&clock(a));
            assert_eq!(ab, ba, "{a:?} {b:?}");
            for lane in 0..10 {
                assert_eq!(ab.get(lane), clock(a).get(lane).max(clock(b).get(lane)), "{a:?} {b:?} lane {lane}");
            }
        }
    }
}
