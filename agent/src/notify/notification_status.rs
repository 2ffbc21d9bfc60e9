//! The status of a notification as of now.

use nudge_protocol::status::{NotificationStatus, Outcome};
use time::OffsetDateTime;

/// Returns the status of an outcome for the dictionary with `etag` that was reached now.
pub(super) fn status_now(outcome: Outcome, message: String, etag: &str, attempts: u32) -> NotificationStatus {
    let time = (outcome != Outcome::Pending).then(OffsetDateTime::now_utc);
    NotificationStatus { outcome, message, etag: Some(etag.to_owned()), attempts, at: time, processes: Vec::new() }
}
