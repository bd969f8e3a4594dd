//! Candidates that take turns on the same streams, timed with events.

use std::marker::PhantomData;

use super::{Summary, median};
use crate::driver::{CaptureMode, Event, Graph, Stream};
use crate::error::Result;

/// Something to time.
pub struct Candidate<'a> {
    name: String,
    calls: usize,
    body: Body<'a>,
}

enum Body<'a> {
    /// Enqueues one call; the argument counts calls, to choose the buffers.
    Direct(Box<dyn FnMut(usize) -> Result<()> + 'a>),
    /// A sample's calls, on the first stream.
    Captured(Box<Graph>, PhantomData<&'a ()>),
}

impl<'a> Candidate<'a> {
    /// A candidate whose sample is `calls` calls of `enqueue`, back to back. Each call enqueues its work on the streams that
    /// are timed, or on streams that they wait for, and waits for nothing.
    pub fn direct(name: impl Into<String>, calls: usize, enqueue: impl FnMut(usize) -> Result<()> + 'a) -> Self {
        Self { name: name.into(), calls: calls.max(1), body: Body::Direct(Box::new(enqueue)) }
    }

    /// A candidate whose sample is a graph of `calls` calls of `enqueue`, captured from `stream`: launching costs the host
    /// next to nothing, so that short kernels are not timed by what it takes to launch them.
    ///
    /// # Safety
    /// The memory that the calls use stays there, and is used by nothing else meanwhile, as long as the candidate is timed.
    ///
    /// # Errors
    /// Those of `enqueue`, and [`Error::Driver`](crate::Error::Driver) when it does what cannot be captured.
    pub unsafe fn captured(
        name: impl Into<String>,
        calls: usize,
        stream: &Stream,
        mut enqueue: impl FnMut(usize) -> Result<()>,
    ) -> Result<Self> {
        let calls = calls.max(1);
        let capture = stream.begin_capture(CaptureMode::Relaxed)?;
        (0..calls).try_for_each(&mut enqueue)?;
        let graph = capture.end()?;
        Ok(Self { name: name.into(), calls, body: Body::Captured(Box::new(graph), PhantomData) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What comes before the clock starts: the queue is then full, and no launch is waited for.
    fn lead_in(&mut self) -> Result<()> {
        match &mut self.body {
            Body::Direct(enqueue) => enqueue(0),
            // The sample before it fills the queue.
            Body::Captured(..) => Ok(()),
        }
    }

    fn sample(&mut self, streams: &[Stream]) -> Result<()> {
        match &mut self.body {
            Body::Direct(enqueue) => (1..=self.calls).try_for_each(enqueue),
            // SAFETY: promised by whoever made the candidate.
            Body::Captured(graph, _) => unsafe { graph.launch(&streams[0]) },
        }
    }
}

/// Seconds a call of one candidate, by rank and round.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The candidate's name.
    pub name: String,
    /// `ranks[r][i]`: on stream r in round i.
    pub ranks: Vec<Vec<f64>>,
}

impl Samples {
    /// The slowest rank of each round.
    pub fn worst(&self) -> Vec<f64> {
        let rounds = self.ranks.iter().map(Vec::len).min().unwrap_or(0);
        (0..rounds).map(|round| self.ranks.iter().map(|rank| rank[round]).fold(0.0, f64::max)).collect()
    }

    /// Summary over the rounds of their slowest ranks; `None` without samples.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.worst())
    }

    /// Median over the rounds of their slowest ranks, in seconds; not a number without samples.
    pub fn seconds(&self) -> f64 {
        median(&self.worst()).unwrap_or(f64::NAN)
    }

    /// Median of the rank whose median is largest: who is slow in general, rather than by turns.
    pub fn slowest_rank_seconds(&self) -> f64 {
        self.ranks.iter().filter_map(|rank| median(rank)).fold(f64::NAN, f64::max)
    }
}

/// Times `candidates` in turns, for `rounds` rounds after one that is not counted. Each round has an order of its own, the same
/// in every run: a GPU at its limit of power is faster after a candidate that drew less of it, so who comes after whom must not
/// always be the same.
///
/// Between two candidates all streams wait for each other, so that no candidate runs beside another. The host does not wait
/// before the end: the queue stays full.
///
/// # Errors
/// Those of the candidates; [`Error::Driver`](crate::Error::Driver).
pub fn interleave(streams: &[Stream], candidates: &mut [Candidate<'_>], rounds: usize) -> Result<Vec<Samples>> {
    let barrier = Barrier::new(streams)?;
    let mut laps = Vec::with_capacity(rounds * candidates.len());
    for round in 0..=rounds {
        for at in order_of(round, candidates.len()) {
            let lap = Lap::new(streams, at)?;
            barrier.pass(streams)?;
            candidates[at].lead_in()?;
            Lap::mark(&lap.starts, streams)?;
            candidates[at].sample(streams)?;
            Lap::mark(&lap.ends, streams)?;
            if round > 0 {
                laps.push(lap);
            }
        }
    }
    streams.iter().try_for_each(Stream::synchronize)?;
    let empty =
        |c: &Candidate<'_>| Samples { name: c.name.clone(), ranks: vec![Vec::with_capacity(rounds); streams.len()] };
    let mut samples: Vec<Samples> = candidates.iter().map(empty).collect();
    for lap in laps {
        let calls = candidates[lap.candidate].calls as f64;
        for (rank, (start, end)) in lap.starts.iter().zip(&lap.ends).enumerate() {
            samples[lap.candidate].ranks[rank].push(end.seconds_since(start)? / calls);
        }
    }
    Ok(samples)
}

/// The order of `candidates` candidates in a round: in steps of a number that has no divisor in common with theirs, another one
/// each round, so that each comes after as many others as there are such numbers.
fn order_of(round: usize, candidates: usize) -> impl Iterator<Item = usize> {
    let steps: Vec<usize> = (1..candidates.max(2)).filter(|step| gcd(*step, candidates) == 1).collect();
    let step = steps[round % steps.len()];
    (0..candidates).map(move |turn| (round + turn * step) % candidates)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One sample: an event on each stream before it, and one after.
struct Lap {
    candidate: usize,
    starts: Vec<Event>,
    ends: Vec<Event>,
}

impl Lap {
    fn new(streams: &[Stream], candidate: usize) -> Result<Self> {
        let events = || streams.iter().map(|stream| Event::timed(stream.gpu())).collect::<Result<Vec<_>>>();
        Ok(Self { candidate, starts: events()?, ends: events()? })
    }

    fn mark(events: &[Event], streams: &[Stream]) -> Result<()> {
        events.iter().zip(streams).try_for_each(|(event, stream)| event.record(stream))
    }
}

/// Lets every stream wait for every other.
struct Barrier {
    events: Vec<Event>,
}

impl Barrier {
    fn new(streams: &[Stream]) -> Result<Self> {
        Ok(Self { events: streams.iter().map(|stream| Event::new(stream.gpu())).collect::<Result<_>>()? })
    }

    fn pass(&self, streams: &[Stream]) -> Result<()> {
        Lap::mark(&self.events, streams)?;
        for (at, stream) in streams.iter().enumerate() {
            for (_, event) in self.events.iter().enumerate().filter(|(from, _)| *from != at) {
                stream.wait(event)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_rank_is_taken_round_by_round() {
        let samples = Samples { name: String::new(), ranks: vec![vec![1.0, 5.0, 3.0], vec![2.0, 4.0, 3.5]] };
        assert_eq!(samples.worst(), [2.0, 5.0, 3.5]);
        assert_eq!(samples.seconds(), 3.5);
        assert_eq!(samples.slowest_rank_seconds(), 3.5);
        assert_eq!(samples.summary().unwrap().count, 3);
    }

    #[test]
    fn every_round_has_each_candidate_once() {
        for candidates in 0..20 {
            for round in 0..25 {
                let mut order: Vec<_> = order_of(round, candidates).collect();
                order.sort_unstable();
                assert!(order.into_iter().eq(0..candidates), "round {round} of {candidates}");
            }
        }
    }

    #[test]
    fn nobody_always_comes_after_the_same_one() {
        for (candidates, least) in [(3, 2), (4, 2), (9, 6), (16, 8), (17, 15)] {
            let orders: Vec<Vec<_>> = (0..16).map(|round| order_of(round, candidates).collect()).collect();
            for at in 0..candidates {
                let before = |order: &Vec<usize>| order.windows(2).find(|pair| pair[1] == at).map(|pair| pair[0]);
                let mut before: Vec<_> = orders.iter().filter_map(before).collect();
                before.sort_unstable();
                before.dedup();
                assert!(before.len() >= least, "{at} of {candidates} comes after {before:?} alone");
            }
        }
    }

    #[test]
    fn no_rounds_are_no_number() {
        let none = Samples { name: String::new(), ranks: vec![Vec::new(); 2] };
        assert!(none.seconds().is_nan() && none.slowest_rank_seconds().is_nan() && none.summary().is_none());
    }
}
