//! The polls of one connection: an agent that gets a reply, asks again and gets the same does not take it, so it waits ever longer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The longest pause before the same reply is sent over one connection again.
const MAX_PAUSE: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(crate) struct ConnectionPolls {
    /// The fingerprint of the last reply, and when it was sent.
    last: Option<(u64, Instant)>,
    /// How often it was repeated.
    repeats: u32,
    /// The agent has something to say, and wants the poll that is held to end.
    pub(crate) interrupted: Arc<Notify>,
}

impl ConnectionPolls {
    /// Returns when a reply may be sent; `None` is now.
    pub(super) fn not_before(&self, fingerprint: u64) -> Option<Instant> {
        let (_, at) = self.last.filter(|(last, _)| *last == fingerprint)?;
        let pause = Duration::from_secs(1) * 2_u32.saturating_pow(self.repeats.min(10));
        Some(at + pause.min(MAX_PAUSE))
    }

    pub(super) fn sent(&mut self, fingerprint: u64) {
        let same = self.last.is_some_and(|(last, _)| last == fingerprint);
        self.repeats = if same { self.repeats + 1 } else { 0 };
        self.last = Some((fingerprint, Instant::now()));
    }
}
