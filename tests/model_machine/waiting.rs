//! Who waits for what: waits park instead of spinning, so that models stay finite and a deadlock is found at once.
//!
//! A thread that is woken has synchronised with the one that woke it. Whether a protocol's own orders suffice is
//! therefore decided in those interleavings in which a wait finds what it waits for at its first look.

use loom::thread::{self, Thread};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use tilewire_kernels::abi::Wait;

/// A barrier or word, by its address in the model.
pub type Key = usize;

/// All agents of a model. Its own state is no part of the model: it changes only together with a word or barrier.
#[derive(Default)]
pub struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    agents: usize,
    /// How often each word and barrier has been written.
    writes: HashMap<Key, u64>,
    parked: Vec<Parked>,
}

struct Parked {
    keys: Vec<Key>,
    wait: Wait,
    thread: Thread,
}

impl State {
    /// Fails the model if everybody waits.
    fn check_for_deadlock(&self) {
        if self.agents == 0 || self.parked.len() < self.agents {
            return;
        }
        let mut waits: Vec<Wait> = self.parked.iter().map(|parked| parked.wait).collect();
        waits.sort_by_key(|wait| wait.role.code());
        let lines: Vec<String> =
            waits.iter().map(|w| format!("{:?} waits for {:?} {}", w.role, w.kind, w.index)).collect();
        panic!("deadlock: {}", lines.join(", "));
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|failed| failed.into_inner())
    }

    pub fn add_agent(&self) {
        self.state().agents += 1;
    }

    pub fn remove_agent(&self) {
        let mut state = self.state();
        state.agents -= 1;
        if !std::thread::panicking() {
            state.check_for_deadlock();
        }
    }

    /// How often the word or barrier has been written.
    pub fn writes(&self, key: Key) -> u64 {
        self.state().writes.get(&key).copied().unwrap_or(0)
    }

    /// A word or barrier has been written: whoever waits for it looks again.
    pub fn note_write(&self, key: Key) {
        let mut state = self.state();
        *state.writes.entry(key).or_default() += 1;
        let (woken, parked) = std::mem::take(&mut state.parked).into_iter().partition(|p| p.keys.contains(&key));
        state.parked = parked;
        drop(state);
        let woken: Vec<Parked> = woken;
        for parked in woken {
            parked.thread.unpark();
        }
    }

    /// Parks until one of the words and barriers is written, each of which has been seen after so many writes.
    pub fn park(&self, seen: &[(Key, u64)], wait: Wait) {
        let mut state = self.state();
        if seen.iter().any(|(key, writes)| state.writes.get(key).copied().unwrap_or(0) != *writes) {
            return;
        }
        let keys = seen.iter().map(|(key, _)| *key).collect();
        state.parked.push(Parked { keys, wait, thread: thread::current() });
        state.check_for_deadlock();
        drop(state);
        thread::park();
        // Woken by somebody else's token: then the entry is still there.
        let me = thread::current().id();
        self.state().parked.retain(|parked| parked.thread.id() != me);
    }
}
