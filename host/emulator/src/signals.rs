//! Words in global memory that agents share.

use super::agent::Agent;
use super::clock::Clock;
use super::memory::Scope;
use super::trace::EventKind;
use super::violation::{Failure, Violation};
use super::world::{AgentLane, Look, World};
use crate::kernels::machine::{PutSignals, Signals};
use crate::kernels::shape::GlobalAddr;

impl Signals for Agent<'_> {
    fn load_acquire_sys(&self, addr: GlobalAddr) -> u32 {
        self.look_op(|w, me| w.load_acquire(me, addr, Scope::Sys))
    }

    fn load_acquire_gpu(&self, addr: GlobalAddr) -> u32 {
        self.look_op(|w, me| w.load_acquire(me, addr, Scope::Gpu))
    }
}

impl PutSignals for Agent<'_> {
    fn store_release_sys(&self, addr: GlobalAddr, value: u32) {
        self.op(|w, me| w.store_release(me, addr, value, Scope::Sys));
    }

    fn store_release_gpu(&self, addr: GlobalAddr, value: u32) {
        self.op(|w, me| w.store_release(me, addr, value, Scope::Gpu));
    }

    fn fence_sys(&self) {
        self.op(|w, me| {
            w.agents[me].fenced = w.release(me).generic;
            Ok(())
        });
    }

    fn store_fenced_sys(&self, addr: GlobalAddr, value: u32) {
        self.op(|w, me| {
            let fenced = w.agents[me].fenced.clone();
            w.store_word(me, addr, value, Scope::Sys, fenced)
        });
    }

    fn fetch_add_acq_rel_gpu(&self, addr: GlobalAddr, value: u32) -> u32 {
        self.op(|w, me| {
            let old = w.load_acquire(me, addr, Scope::Gpu)?;
            // One atomic operation extends the release sequence: what earlier writers published stays published.
            let earlier = w.memory.words.get(&addr.0).map(|word| word.released.clone()).unwrap_or_default();
            w.store_release(me, addr, old.wrapping_add(value), Scope::Gpu)?;
            w.memory.words.entry(addr.0).or_default().released.join(&earlier);
            Ok(old)
        })
    }
}

impl World {
    fn check_scope(&self, me: usize, addr: GlobalAddr, scope: Scope) -> Result<(), Failure> {
        let rank = self.agents[me].place.rank;
        let detail = if scope == Scope::Gpu && self.memory.rank_of(addr).is_some_and(|owner| owner != rank) {
            "an access at gpu scope to another rank's word".to_string()
        } else {
            match self.memory.words.get(&addr.0).and_then(|word| word.writer) {
                Some((writer, by)) if writer != rank && (by == Scope::Gpu || scope == Scope::Gpu) => {
                    format!("rank {} wrote the word at {by:?} scope, this access is at {scope:?} scope", writer.0)
                }
                _ => return Ok(()),
            }
        };
        Err(Failure::new(Violation::ScopeTooNarrow, format!("{}: {detail}", self.memory.describe(addr))))
    }

    fn load_acquire(&mut self, me: usize, addr: GlobalAddr, scope: Scope) -> Result<u32, Failure> {
        let value = self.memory.word(addr)?;
        self.check_scope(me, addr, scope)?;
        let word = self.memory.words.entry(addr.0).or_default();
        let version = word.version;
        self.agents[me].view.generic.join(&word.released);
        self.look(me, Look::Word(addr.0), version);
        Ok(value)
    }

    pub(super) fn store_release(
        &mut self,
        me: usize,
        addr: GlobalAddr,
        value: u32,
        scope: Scope,
    ) -> Result<(), Failure> {
        let released = self.release(me).generic;
        self.store_word(me, addr, value, scope, released)
    }

    /// Stores a word that passes on `released`.
    fn store_word(
        &mut self,
        me: usize,
        addr: GlobalAddr,
        value: u32,
        scope: Scope,
        released: Clock,
    ) -> Result<(), Failure> {
        self.memory.word(addr)?;
        self.check_scope(me, addr, scope)?;
        self.check_stores_before_release(me, addr)?;
        let rank = self.agents[me].place.rank;
        self.memory.bytes_mut(addr, 4)?.copy_from_slice(&value.to_le_bytes());
        let word = self.memory.words.entry(addr.0).or_default();
        word.released = released;
        word.writer = Some((rank, scope));
        word.version += 1;
        let waiters = std::mem::take(&mut word.waiters);
        self.wake_all(waiters);
        if self.launches[self.first_open..].iter().any(|l| l.launch.watchdog.is_some_and(|dog| dog.abort == addr)) {
            self.wake_bounded_waits();
        }
        self.record(me, EventKind::Signal { addr: addr.0, value });
        Ok(())
    }

    /// A signal speaks for bulk stores that its thread has seen complete, and fenced since. Stores that are still on their
    /// way then belong to a later signal; whoever reads them on the strength of this one is in a race.
    fn check_stores_before_release(&mut self, me: usize, addr: GlobalAddr) -> Result<(), Failure> {
        let signal = self.memory.describe(addr);
        let a = &mut self.agents[me];
        let complete = a.view.generic.get(a.lane(AgentLane::StoreWrite));
        if a.stores > a.signalled_stores && complete <= a.signalled_stores {
            let detail = format!("signals {signal} when {complete} of its {} bulk stores are known complete", a.stores);
            return Err(Failure::new(Violation::SignalBeforeData, detail));
        }
        if a.fenced_stores < complete {
            let detail = format!("signals {signal} with no proxy fence after the completion of its bulk stores");
            return Err(Failure::new(Violation::MissingProxyFence, detail));
        }
        a.signalled_stores = complete;
        Ok(())
    }
}
