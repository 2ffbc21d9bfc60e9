//! The state in which nothing moves: how a move begins, and what keeps it from beginning.

use nudge_api::Reason;

use super::effects::Transition;
use super::evidence::Evidence;
use super::retry::still_applies;
use super::state::{Base, Idle, Move, Rollout, Stage, next_revision};
use super::verdict::{Names, Verdict, verdict};
use super::watch_time::watch;
use super::{Effects, Now, Observation};
use crate::event_record::EventRecord;

/// Makes the first version of a config current at once, unless it must be approved. Where pods run a version already, the config existed before and
/// was created again, and this version is not the first one.
pub(super) fn first(revision: u64, seen: &Observation<'_>, now: Now<'_>) -> Transition {
    let runs = seen.pods.iter().any(|pod| pod.runs.is_some());
    if let Some(effects) = seen.withheld.filter(|one| runs || one.holds_first()).and_then(|_| seen.withheld()) {
        return (Rollout::Initial { revision }, effects);
    }
    let current = seen.requested.to_owned();
    let message = format!("version {current} is current, as the first version");
    let base = Base { current, previous: None, revision: next_revision(revision, now.time) };
    let event = EventRecord::new(Reason::Current, message);
    (Rollout::Current(Idle { base, failure: None }), Effects::event(event))
}

/// Rests: all pods run the requested version already.
pub(super) fn at_rest(idle: Idle, evidence: &mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Transition {
    // The spec may still name the version that failed, to which pods can't be moved at the moment.
    let failure = idle.failure.filter(|failure| seen.named == Some(&failure.version));
    let idle = Idle { failure, ..idle };
    let effects = suspicion(&idle.base, evidence, seen, now);
    (Rollout::Current(idle), effects)
}

/// Looks at the pods for harm: by a version that became current a short time ago, and else to count how often pods are harmed.
fn suspicion(base: &Base, evidence: &mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Effects {
    let on_trial = evidence.suspected_until.is_some_and(|until| now.steady < until);
    if on_trial {
        evidence.collect_about(&base.current);
    } else {
        evidence.stop_collecting();
    }
    let window = watch(seen.pods.iter(), false, seen.spec.min_ready_seconds).seconds;
    evidence.look(seen, |_| on_trial, window, now.time.0.as_second(), now);
    let effects = Effects::default().look_again_by(evidence.ripens(window, now.steady));
    if !on_trial {
        return effects;
    }
    let names = Names { target: &base.current, current: base.previous.as_deref().unwrap_or("another version") };
    let effects = effects.look_again_by(evidence.suspected_until);
    match verdict(evidence, seen, names, window, now.steady) {
        Verdict::Bad(why) => {
            evidence.suspected_until = None;
            Effects { suspect: Some(format!("version {}: {}", base.current, why.message)), ..effects }
        }
        Verdict::Inconclusive { look_again, .. } => effects.look_again_by(look_again),
        Verdict::Clear => effects,
    }
}

/// Begins the move to another version that is requested, unless something keeps it from beginning.
pub(super) fn begin(Idle { base, failure }: Idle, seen: &Observation<'_>, now: Now<'_>) -> Transition {
    let (current, requested) = (&base.current, seen.requested);
    let failure = match failure {
        Some(failure) if still_applies(&failure, seen) => {
            let message = format!(
                "version {requested} failed and {current} runs again: {}; set spec.version to a new version with a fix, or to \
                 {current}; kubectl nudge retry tries {requested} again",
                failure.message
            );
            return (Rollout::Failed(base, failure), Effects::held(Reason::Failed, message));
        }
        other => other,
    };
    if let Some(other) = seen.waiting_for.filter(|_| seen.at_once.is_none()) {
        return (Rollout::Waiting(Idle { base, failure }), waits_for(other));
    }
    if let Some(effects) = seen.withheld() {
        return (Rollout::Held { idle: Idle { base, failure }, target: requested.to_owned() }, effects);
    }
    let count = seen.pods.len();
    let by = seen.asked_by();
    let message = format!("moving {count} pods from version {current} to {requested}{by}");
    let event = EventRecord::new(Reason::Progressing, message);
    (Rollout::Forward(Move::begun(base, requested, now.time), Stage::Moving), Effects::event(event))
}

/// Waits for another config, which is moved first.
pub(super) fn waits_for(other: &str) -> Effects {
    let message = format!("config {other}, which shares pods with this one, is being moved");
    Effects::waits(Reason::WaitingFor, message, None)
}
