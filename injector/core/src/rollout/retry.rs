//! Whether a version that failed is tried again.

use nudge_api::RolloutFailure;

use super::Observation;

/// Returns whether the request is for what failed: the same content of that version, without a later request to try it again. An assignment to all
/// pods at once is a new request only with another reason, which takes the right to override. No other change of the spec is a new request.
pub(super) fn still_applies(failure: &RolloutFailure, seen: &Observation<'_>) -> bool {
    let retries = seen.requesters.retry.is_some() && failure.retry_time != seen.requesters.retry();
    let asked_anew = match seen.at_once {
        Some(reason) => failure.overridden.as_deref() != Some(reason),
        None => retries,
    };
    failure.version == seen.requested && failure.digest == seen.digest && !asked_anew
}
