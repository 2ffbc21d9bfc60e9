//! The polls of one connection. If an agent asks again after a reply, and would get the same reply, it does not take
//! that reply. So the reply is delayed more and more.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The maximum delay before the same reply is sent over one connection again.
const MAX_REPEAT_DELAY: Duration = Duration::from_mins(1);

/// The last reply that was sent.
#[derive(Debug)]
struct SentReply {
    fingerprint: u64,
    sent_at: Instant,
    /// The number of times it was repeated.
    repeats: u32,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionPolls {
    last_reply: Option<SentReply>,
    /// Notified when the agent wants to send a request, and the held poll to end.
    pub(crate) interrupt: Arc<Notify>,
}

impl ConnectionPolls {
    /// Returns the earliest time of a reply, if the reply is a repetition.
    pub(super) fn not_before(&self, fingerprint: u64) -> Option<Instant> {
        let last = self.last_reply.as_ref().filter(|last| last.fingerprint == fingerprint)?;
        let delay = Duration::from_secs(1) * 2_u32.saturating_pow(last.repeats.min(10));
        Some(last.sent_at + delay.min(MAX_REPEAT_DELAY))
    }

    pub(super) fn record_reply(&mut self, fingerprint: u64) {
        let previous = self.last_reply.take().filter(|last| last.fingerprint == fingerprint);
        let repeats = previous.map_or(0, |last| last.repeats + 1);
        self.last_reply = Some(SentReply { fingerprint, sent_at: Instant::now(), repeats });
    }
}
