//! Short ways to say how telling went.

use nudge_protocol::status::{Outcome, Told};
use time::OffsetDateTime;

/// An outcome for the dictionary with `etag`, reached now.
pub(super) fn told(outcome: Outcome, message: String, etag: &str, attempts: u32) -> Told {
    let at = (outcome != Outcome::Pending).then(OffsetDateTime::now_utc);
    Told { outcome, message, etag: Some(etag.to_owned()), attempts, at, processes: Vec::new() }
}
