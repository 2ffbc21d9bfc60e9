//! The return to the current version: from a target that failed, or that is not requested any more.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use nudge_api::{Explanation, OnFailure, Reason, RolloutFailure, clipped};
use nudge_protocol::plural::{agreeing, counted};

use super::clock::{SteadyTime, after, seconds};
use super::effects::Transition;
use super::judgement::Evidence;
use super::state::{Base, Cause, Idle, Return, Rollout, Stage, Transfer};
use super::{Continuation, Effects, Now, Observation, Restarts, Subject};
use crate::event_record::EventRecord;

/// Returns the message of a rollout that failed and is stopped.
pub(super) fn stopped_message(message: &str, observation: &Observation<'_>) -> String {
    let remedy = if observation.follows_text {
        "correct the text, or make another version current (kubectl nudge use), or set onFailure to Rollback"
    } else {
        "set spec.version to another version, or onFailure to Rollback"
    };
    format!("{message}; the rollout is stopped (onFailure: Hold): {remedy}, or try again (kubectl nudge retry)")
}

/// Ends a move whose target is bad: every pod returns, or the rollout stops, as the spec says.
pub(super) fn fail(
    transfer: Transfer,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
    Explanation { reason, message }: Explanation,
) -> Transition {
    let now = observation.now;
    let failure = RolloutFailure {
        version: transfer.target.clone(),
        digest: observation.digest.to_owned(),
        retry_time: observation.requesters.retry_time(),
        reason,
        message: clipped(message.clone()),
        overridden: observation.override_reason.map(str::to_owned),
    };
    if observation.spec.on_failure == OnFailure::Hold {
        let message = stopped_message(&message, observation);
        let event = Some(EventRecord::new(Reason::Failed, message.clone()));
        let effects = Effects { event, ..Effects::blocked(Reason::Failed, message) };
        return (Rollout::Forward(Transfer { stopped_by: Some(failure), ..transfer }), effects);
    }
    roll_back(transfer, failure, evidence, now)
}

/// Returns every pod from a target that failed.
pub(super) fn roll_back(
    transfer: Transfer,
    failure: RolloutFailure,
    evidence: &mut Evidence,
    now: Now<'_>,
) -> Transition {
    let message = format!("{}; every pod returns to version {}", failure.message, transfer.base.current);
    let back = turn_back(transfer, Cause::RollingBack(failure), evidence, now);
    (Rollout::Back(back), Effects::event(EventRecord::warning(Reason::RollingBack, message)))
}

/// Leaves a target that is not current yet, because another version is requested.
pub(super) fn begin_leaving(mut transfer: Transfer, evidence: &mut Evidence, now: Now<'_>) -> Transition {
    let cause = Cause::Leaving(transfer.stopped_by.take());
    let target = &transfer.target;
    let current = &transfer.base.current;
    let message = format!("version {target} is not requested any more; pods return to {current}");
    let back = turn_back(transfer, cause, evidence, now);
    (Rollout::Back(back), Effects::event(EventRecord::new(Reason::Leaving, message)))
}

/// Assigns the current version to every pod again.
fn turn_back(transfer: Transfer, cause: Cause, evidence: &mut Evidence, now: Now<'_>) -> Return {
    evidence.begin_return(now.steady);
    Return {
        base: transfer.base.reassigned(now.time),
        target: transfer.target,
        cause,
        began_at: transfer.began_at,
        workloads_restarted_at: (transfer.stage == Stage::Restarting).then_some(Time(transfer.progressed_at.0)),
        progressed_at: MicroTime(now.time.0),
    }
}

/// Returns to the previous version, which is requested: it is current again at once, and one write assigns it to every
/// pod. The version that was current does not become the previous version: a return to it is an ordinary rollout.
///
/// The return is a brake. It does not depend on healthy pods, and waits neither for a hold to end nor for another
/// config.
pub(super) fn return_to_previous(base: Base, evidence: &mut Evidence, observation: &Observation<'_>) -> Transition {
    let now = observation.now;
    evidence.begin_return(now.steady);
    let now = now.time;
    let Base { current: from, revision, .. } = base;
    let base = Base { current: observation.requested.to_owned(), previous: None, revision }.reassigned(now);
    let by = observation.requester_phrase();
    let message = format!("version {} is requested again{by}; every pod returns to it from {from}", base.current);
    let back = Return {
        base,
        target: from,
        cause: Cause::Returning,
        began_at: now.clone(),
        progressed_at: MicroTime(now.0),
        workloads_restarted_at: Some(observation.current_since.unwrap_or(now).clone()),
    };
    (Rollout::Back(back), Effects::event(EventRecord::warning(Reason::RollingBack, message)))
}

/// Makes one transition on the way back: once every pod has returned, nothing moves any more.
pub(super) fn advance(back: Return, evidence: &mut Evidence, observation: &Observation<'_>) -> Transition {
    evidence.reset_after_gap();
    if let Some(effects) = return_wait(&back, evidence.returning_since(observation.now.steady), observation) {
        return (Rollout::Back(back), effects);
    }
    let base = back.base.clone().reassigned(observation.now.time);
    match back.cause.clone() {
        Cause::Leaving(failure) => (Rollout::Waiting(Idle { base, failure }), Continuation::AtOnce.into()),
        Cause::Returning => (Rollout::Waiting(Idle { base, failure: None }), Continuation::AtOnce.into()),
        Cause::RollingBack(failure) => {
            let pods_away = observation.pods.iter().filter(|pod| is_away(&back, pod)).count();
            let pods_phrase = if pods_away == 0 {
                format!("every pod runs version {} again", base.current)
            } else {
                let (pods, verb) = (counted(pods_away, "pod"), agreeing(pods_away, "does", "do"));
                format!("{pods} {verb} not run version {} again", base.current)
            };
            let message = format!("{pods_phrase}: {}", failure.message);
            (Rollout::Failed { base, failure }, Effects::event(EventRecord::new(Reason::Failed, message)))
        }
    }
}

/// Returns the wait on the way back: for pods, the published ConfigMap, or workloads that were restarted. The return
/// does not wait for a workload that did not become ready with the good version either; the condition `Restarted` names
/// that workload. `since` is when this leader saw the return first.
fn return_wait(back: &Return, since: SteadyTime, observation: &Observation<'_>) -> Option<Effects> {
    let current = &back.base.current;
    // Overdue pods are left behind, and so are pods that can't be reached.
    let deadline = observation.spec.progress_deadline_seconds;
    let overdue = observation.now.until_within(after(back.progressed_at.0, deadline), since + seconds(deadline));
    let pods_away = observation.pods.iter().filter(|pod| is_away(back, pod)).count();
    if let Some(overdue) = overdue.filter(|_| pods_away > 0) {
        let (pods, verb) = (counted(pods_away, "pod"), agreeing(pods_away, "does", "do"));
        let message = format!("{pods} {verb} not run version {current} again yet");
        return Some(Effects::wait(Reason::RollingBack, message, Some(overdue)));
    }
    match (observation.publish_failure(current), overdue) {
        (None, _) => {
            if let Some(effects) = observation.publish_wait(current) {
                return Some(effects);
            }
        }
        // Only restarted workloads need the publication, and overdue workloads are left behind like pods.
        (Some(failure), Some(overdue)) if back.workloads_restarted_at.is_some() => {
            let message = format!("version {current} is not published again yet: {}", failure.why.message);
            return Some(Effects::wait(Reason::NotPublished, message, Some(overdue)));
        }
        (Some(_), _) => {}
    }
    match observation.restart {
        Restarts::Busy(message) => Some(Effects::wait(Reason::Restarting, message, None)),
        _ => None,
    }
}

/// Returns whether the pod still runs another version than the current one, as far as the pod can say. A pod whose
/// containers crash can be reached, so it is waited for. A pod that refused a version runs the previous version; its
/// report must be gone before another version begins. A pod that can't be restarted with the current version refuses
/// that version.
fn is_away(back: &Return, pod: &Subject) -> bool {
    let refusal = |reason: Reason| matches!(reason, Reason::CheckRefused | Reason::CantApply);
    let refused = pod.failure.as_ref().is_some_and(|failure| refusal(failure.reason));
    pod.is_reachable() && (refused || pod.runs.as_deref() != Some(&back.base.current))
}
