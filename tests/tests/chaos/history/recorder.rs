//! Writes the history: everybody who sees something has one.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use nudge_tests::clock::Monotonic;
use parking_lot::{Mutex, MutexGuard};

use super::{Event, History, Time, What};

/// Adds to the one history.
#[derive(Clone)]
pub(crate) struct Recorder {
    began: Monotonic,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { began: Monotonic::now(), history: Arc::default() }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Time {
        self.time_of(Monotonic::now().nanos())
    }

    /// The time of a reading of the machine's clock.
    pub(crate) fn time_of(&self, nanos: u64) -> Time {
        nanos.saturating_sub(self.began.nanos()) / 1_000_000
    }

    /// It happens now.
    pub(crate) fn note(&self, what: What) {
        let mut history = self.lock();
        let at = self.now();
        history.events.push(Event { at, what });
    }

    /// It happened a moment ago.
    pub(crate) fn note_at(&self, at: Time, what: What) {
        self.lock().events.push(Event { at, what });
    }

    /// All of it so far, in order of time.
    pub(crate) fn history(&self) -> History {
        let mut history = self.lock().clone();
        history.events.sort_by_key(|event| event.at);
        history
    }

    /// Looks at the events without taking them.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&[Event]) -> T) -> T {
        look(&self.lock().events)
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }
}

/// Keeps a history as lines of JSON.
pub(crate) fn write(history: &History, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("can't make {}", path.display()))?;
    let mut out = BufWriter::new(file);
    for event in &history.events {
        serde_json::to_writer(&mut out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
