//! The recorder of the history, which all tasks that see something share.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use nudge_tests::clock::Monotonic;
use parking_lot::{Mutex, MutexGuard};

use super::{Event, History, Occurrence, Time};

/// Adds events to the history.
#[derive(Clone)]
pub(crate) struct Recorder {
    began: Monotonic,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { began: Monotonic::now(), history: Arc::default() }
    }

    /// Returns the time now.
    pub(crate) fn now(&self) -> Time {
        self.time_of(Monotonic::now().nanos())
    }

    /// Returns the time of a reading of the machine's clock.
    pub(crate) fn time_of(&self, nanos: u64) -> Time {
        nanos.saturating_sub(self.began.nanos()) / 1_000_000
    }

    /// Records something that happens now.
    pub(crate) fn note(&self, what: Occurrence) {
        let mut history = self.lock();
        let at = self.now();
        history.events.push(Event { at, what });
    }

    /// Records something that happened a moment ago.
    pub(crate) fn note_at(&self, at: Time, what: Occurrence) {
        self.lock().events.push(Event { at, what });
    }

    /// Returns the history so far, in order of time.
    pub(crate) fn history(&self) -> History {
        let mut history = self.lock().clone();
        history.events.sort_by_key(|event| event.at);
        history
    }

    /// Calls `read` with the events so far.
    pub(crate) fn with_events<T>(&self, read: impl FnOnce(&[Event]) -> T) -> T {
        read(&self.lock().events)
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }
}

/// Writes a history as lines of JSON.
pub(crate) fn write(history: &History, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("can't create {}", path.display()))?;
    let mut out = BufWriter::new(file);
    for event in &history.events {
        serde_json::to_writer(&mut out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
