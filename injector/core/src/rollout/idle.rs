//! The state while nothing moves: the beginning of a move, and the reasons that prevent it.

use nudge_api::Reason;
use nudge_protocol::plural::counted;

use super::effects::Transition;
use super::judgement::Evidence;
use super::judgement::step_watch;
use super::judgement::{Verdict, reach_verdict};
use super::record::still_applies;
use super::state::{Base, Idle, Rollout, Transfer, next_revision};
use super::{Effects, Observation};
use crate::analysis::VersionNames;
use crate::event_record::EventRecord;

/// Makes the first version of a config current at once, unless it must be approved. If pods already run a version, the
/// config existed before and was created again, so this version is not its first.
pub(super) fn make_first_current(revision: u64, observation: &Observation<'_>) -> Transition {
    let has_running_pods = observation.pods.iter().any(|pod| pod.runs.is_some());
    let must_wait = observation.closed_gate.is_some_and(|gate| has_running_pods || gate.stops_first_version());
    if let Some(effects) = observation.gate_effects().filter(|_| must_wait) {
        return (Rollout::Initial { revision }, effects);
    }
    let current = observation.requested.to_owned();
    let message = format!("version {current} is current, as the first version");
    let base = Base { current, previous: None, revision: next_revision(revision, observation.now.time) };
    let event = EventRecord::new(Reason::Current, message);
    (Rollout::Current(Idle { base, failure: None }), Effects::event(event))
}

/// Stays idle, because all pods run the requested version.
pub(super) fn rest(idle: Idle, evidence: &mut Evidence, observation: &Observation<'_>) -> Transition {
    // The spec may still name the failed version, although pods can't be moved to it at the moment.
    let failure = idle.failure.filter(|failure| observation.spec_version == Some(&failure.version));
    let idle = Idle { failure, ..idle };
    let effects = watch_current(&idle.base, evidence, observation);
    (Rollout::Current(idle), effects)
}

/// Observes the pods for harm by a version that became current a short time ago, or else to count how often pods are
/// harmed.
fn watch_current(base: &Base, evidence: &mut Evidence, observation: &Observation<'_>) -> Effects {
    let now = observation.now;
    let suspected_until = evidence.suspected_until().filter(|until| now.steady < *until);
    let on_trial = suspected_until.is_some();
    if on_trial {
        evidence.collect_about(&base.current);
    } else {
        evidence.stop_collecting();
    }
    let watch_seconds = step_watch(observation.pods.iter(), false, observation.spec.min_ready_seconds).seconds;
    evidence.observe(observation, |_| on_trial, watch_seconds, now.time.0.as_second());
    let effects = Effects::default().reconcile_by(evidence.ripens(watch_seconds, now.steady));
    if !on_trial {
        return effects;
    }
    let names = VersionNames { target: &base.current, current: base.previous.as_deref().unwrap_or("another version") };
    let effects = effects.reconcile_by(suspected_until);
    match reach_verdict(evidence, observation, names, watch_seconds) {
        Verdict::Bad(explanation) => {
            evidence.suspect_until(now.steady);
            Effects { suspicion: Some(format!("version {}: {}", base.current, explanation.message)), ..effects }
        }
        Verdict::Inconclusive { reconcile_at, .. } => effects.reconcile_by(reconcile_at),
        Verdict::Clear => effects,
    }
}

/// Begins the move to another version that is requested, unless something keeps it from beginning.
pub(super) fn begin(Idle { base, failure }: Idle, observation: &Observation<'_>) -> Transition {
    let now = observation.now;
    let current = &base.current;
    let requested = observation.requested;
    let failure = match failure {
        Some(failure) if still_applies(&failure, observation) => {
            let remedy = if observation.follows_text {
                "correct the text, or put the text of the current version back".to_owned()
            } else {
                format!("set spec.version to a new version with a fix, or to {current}")
            };
            let message = format!(
                "version {requested} failed and {current} runs again: {}; {remedy}; kubectl nudge retry tries {requested} again",
                failure.message
            );
            return (Rollout::Failed { base, failure }, Effects::blocked(Reason::Failed, message));
        }
        other => other,
    };
    if let Some(other) = observation.waiting_for.filter(|_| observation.override_reason.is_none()) {
        return (Rollout::Waiting(Idle { base, failure }), wait_for_config(other));
    }
    if let Some(effects) = observation.gate_effects() {
        return (Rollout::NotBegun { idle: Idle { base, failure }, target: requested.to_owned() }, effects);
    }
    let pods = counted(observation.pods.len(), "pod");
    let by = observation.requester_phrase();
    let message = format!("moving {pods} from version {current} to {requested}{by}");
    let event = EventRecord::new(Reason::Progressing, message);
    (Rollout::Forward(Transfer::new(base, requested, now.time)), Effects::event(event))
}

/// Waits for another config, which is moved first.
pub(super) fn wait_for_config(other: &str) -> Effects {
    let message = format!("config {other}, which shares pods with this one, is moved first");
    Effects::wait(Reason::WaitingFor, message, None)
}
