//! Bounded waiting, in which time is the number of pauses.

use super::{Agent, Mutant};
use loom::sync::atomic::Ordering;
use loom::thread;
use tilewire_kernels::abi::Wait;
use tilewire_kernels::config::TileConfig;
use tilewire_kernels::machine::{Aborted, NeighbourKernels, Settle, Watch};

/// A deadline that never passes.
pub const FOREVER: u64 = 0;

impl<C: TileConfig> Settle for Agent<C> {}

impl<C: TileConfig> NeighbourKernels for Agent<C> {}

impl<C: TileConfig> Watch for Agent<C> {
    /// Pauses so far.
    type Patience = u64;

    fn patience(&self) -> u64 {
        0
    }

    fn pause(&self, pauses: &mut u64, wait: impl Fn() -> Wait) -> Result<(), Aborted> {
        let mut seen = vec![self.last_look()];
        if self.finish_loads() {
            return Ok(());
        }
        if self.last_look_was_stale() {
            thread::yield_now();
            return Ok(());
        }
        *pauses += 1;
        if let Some(watchdog) = self.cta.watchdog
            && !self.is(Mutant::NoAbortLook)
        {
            let word = self.cta.memory.word(watchdog.abort);
            let (raised, stale) = word.look(Ordering::Relaxed, false);
            if raised != 0 {
                return Err(Aborted);
            }
            if stale {
                thread::yield_now();
                return Ok(());
            }
            seen.push((word.key(), self.cta.memory.waiting.writes(word.key())));
        }
        match self.cta.watchdog {
            Some(watchdog) if !self.is(Mutant::NoDeadline) && *pauses <= watchdog.deadline_ns => thread::yield_now(),
            Some(watchdog) if !self.is(Mutant::NoDeadline) && *pauses == watchdog.deadline_ns + 1 => {
                if watchdog.deadline_ns != FOREVER {
                    self.report(wait());
                }
            }
            _ => self.cta.memory.waiting.park(&seen, wait()),
        }
        Ok(())
    }
}

impl<C: TileConfig> Agent<C> {
    /// As on the GPU: the first to claim writes the record, and everybody's abort words are raised.
    fn report(&self, wait: Wait) {
        let (memory, watchdog) = (&self.cta.memory, self.cta.watchdog.expect("only a watched wait is reported"));
        let claim = memory.word(watchdog.claim);
        let claimed_before = if self.is(Mutant::SplitClaim) {
            let before = claim.load(Ordering::Relaxed);
            claim.store(1, Ordering::Relaxed, false);
            before
        } else {
            claim.swap(1, Ordering::Relaxed)
        };
        if claimed_before == 0 {
            memory.payload(watchdog.record).write(record_of(wait));
            memory.word(watchdog.record.plus(4)).store(1, Ordering::Release, false);
        }
        for abort in watchdog.peer_aborts.iter().take(watchdog.world as usize) {
            let word = memory.word(*abort);
            word.store(1, Ordering::Relaxed, false);
            memory.waiting.note_write(word.key());
        }
    }
}

/// A fault record as one number.
pub fn record_of(wait: Wait) -> u32 {
    wait.role.code() << 16 | wait.kind as u32
}
