//! The decision whether a failed version is tried again.

use nudge_api::RolloutFailure;

use crate::rollout::Observation;

/// Returns whether the request is for the content that failed, without a later request to try it again. An assignment
/// to all pods at once is a new request only with another reason. Changing the reason takes the right to override. No
/// other change of the spec is a new request.
pub(in crate::rollout) fn still_applies(failure: &RolloutFailure, observation: &Observation<'_>) -> bool {
    let retries = observation.requesters.retry.is_some() && failure.retry_time != observation.requesters.retry_time();
    let asked_anew = match observation.override_reason {
        Some(reason) => failure.overridden.as_deref() != Some(reason),
        None => retries,
    };
    failure.version == observation.requested && failure.digest == observation.digest && !asked_anew
}
