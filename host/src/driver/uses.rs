//! Who still uses an allocation: the reason why safe code cannot free memory under a running kernel.

use std::sync::{Mutex, PoisonError};

use super::event::Event;
use super::stream::Stream;
use crate::error::Result;

/// Entries above which finished ones are dropped: more streams than anybody uses at a time, so that a call in a stream
/// seen before keeps finding its event.
const MANY: usize = 32;

/// One event a stream, recorded after the stream's last use.
///
/// A later use in the same stream re-records the event, so a call allocates only the first time that it sees a
/// stream. Streams are told apart by id: handles are given out again.
#[derive(Default)]
pub(crate) struct Uses(Mutex<Vec<(u64, Event)>>);

impl Uses {
    /// Everything now in `stream` may use the allocation.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, event)) = uses.iter().find(|(id, event)| *id == stream.id() && event.gpu() == stream.gpu()) {
            return event.record(stream);
        }
        if uses.len() >= MANY {
            uses.retain(|(_, event)| !matches!(event.is_reached(), Ok(true)));
        }
        let event = Event::new(stream.gpu())?;
        event.record(stream)?;
        uses.push((stream.id(), event));
        Ok(())
    }

    /// Waits for all uses. Every one is awaited, and the first error is returned.
    pub(crate) fn wait(&self) -> Result<()> {
        let uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = Ok(());
        for (_, event) in uses.iter() {
            result = result.and(event.synchronize());
        }
        result
    }
}
