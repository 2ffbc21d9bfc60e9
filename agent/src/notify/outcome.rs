//! The outcome of a notification.

use nudge_protocol::status::{NotificationStatus, Outcome};
use time::OffsetDateTime;

/// An outcome for the dictionary with `etag`, reached now.
pub(super) fn notified(outcome: Outcome, message: String, etag: &str, attempts: u32) -> NotificationStatus {
    let at = (outcome != Outcome::Pending).then(OffsetDateTime::now_utc);
    NotificationStatus { outcome, message, etag: Some(etag.to_owned()), attempts, at, processes: Vec::new() }
}
