//! Nothing moves: the beginning of a move, and what keeps it from beginning.

use nudge_api::{Reason, RolloutFailure};

use super::effects::Next;
use super::evidence::Evidence;
use super::forward::begun;
use super::state::{Base, Idle, Rollout, Stage, next_revision};
use super::verdict::{Names, Verdict, verdict};
use super::watch::watch;
use super::{Effects, Now, Observation};
use crate::event_record::EventRecord;

/// The first version of a config is current at once, unless it has to be approved. Where pods run a version already, the config was there
/// before and is made again: for them it is not the first one.
pub(super) fn first(revision: u64, seen: &Observation<'_>, now: Now<'_>) -> Next {
    let runs = seen.pods.iter().any(|pod| pod.runs.is_some());
    if let Some(effects) = seen.withheld.filter(|one| runs || one.holds_first()).and_then(|_| seen.withheld()) {
        return (Rollout::Initial { revision }, effects);
    }
    let current = seen.requested.to_owned();
    let message = format!("version {current} is current, the first one");
    let base = Base { current, previous: None, revision: next_revision(revision, now.time) };
    let event = EventRecord::new(Reason::Current, message);
    (Rollout::Current(Idle { base, failure: None }), Effects::event(event))
}

/// All pods run the requested version already.
pub(super) fn at_rest(idle: Idle, evidence: &mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Next {
    let failure = idle.failure.filter(|failure| failure.generation == seen.generation);
    let idle = Idle { failure, ..idle };
    let effects = suspicion(&idle.base, evidence, seen, now);
    (Rollout::Current(idle), effects)
}

/// Looks at the pods for harm: to a version that became current a short time ago, and else for how often there is any.
fn suspicion(base: &Base, evidence: &mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Effects {
    let on_trial = evidence.suspected_until.is_some_and(|until| now.steady < until);
    if on_trial {
        evidence.about(&base.current);
    } else {
        evidence.about_none();
    }
    let window = watch(seen.pods.iter(), false, seen.spec.min_ready_seconds).seconds;
    let second = now.time.0.as_second();
    evidence.look(seen, |_| on_trial, window, second, now.steady, second);
    let effects = Effects::default().by(evidence.ripens(window, now.steady));
    if !on_trial {
        return effects;
    }
    let names = Names { target: &base.current, current: base.previous.as_deref().unwrap_or("another version") };
    let effects = effects.by(evidence.suspected_until);
    match verdict(evidence, seen, names, window, now.steady) {
        Verdict::Bad(why) => {
            evidence.suspected_until = None;
            Effects { suspect: Some(format!("version {}: {}", base.current, why.message)), ..effects }
        }
        Verdict::Inconclusive { look_again, .. } => effects.by(look_again),
        Verdict::Clear => effects,
    }
}

/// Another version is requested: the move begins, unless something keeps it from beginning.
pub(super) fn begin(Idle { base, failure }: Idle, seen: &Observation<'_>, now: Now<'_>) -> Next {
    let (current, requested) = (&base.current, seen.requested);
    // What asked for it at once would reach every pod again, whatever else changes.
    let same = |failure: &RolloutFailure| failure.overridden.is_some() && failure.overridden.as_deref() == seen.at_once;
    let failed = |failure: &RolloutFailure| {
        failure.version == requested && (failure.generation == seen.generation || same(failure))
    };
    let failure = match failure {
        Some(failure) if failed(&failure) => {
            let change =
                if same(&failure) { "another reason in spec.rollout.override, or none," } else { "any change of spec" };
            let message = format!(
                "version {requested} failed and {current} runs again: {}; set spec.current to a new version with a fix, or to \
                 {current}; {change} tries {requested} again",
                failure.message
            );
            return (Rollout::Failed(base, failure), Effects::held(Reason::Failed, message));
        }
        other => other,
    };
    if let Some(other) = seen.waiting_for.filter(|_| seen.at_once.is_none()) {
        return (Rollout::Waiting(Idle { base, failure }), waits_for(other));
    }
    if seen.spec.paused && seen.at_once.is_none() {
        return (Rollout::Paused(Idle { base, failure }, requested.to_owned()), paused(requested));
    }
    if let Some(effects) = seen.withheld() {
        return (Rollout::Paused(Idle { base, failure }, requested.to_owned()), effects);
    }
    let count = seen.pods.len();
    let by = seen.asked_by();
    let message = format!("moving {count} pods from version {current} to {requested}{by}");
    let event = EventRecord::new(Reason::Progressing, message);
    (Rollout::Forward(begun(base, requested, now.time), Stage::Moving), Effects::event(event))
}

/// A move to this version is paused.
pub(super) fn paused(version: &str) -> Effects {
    let message = format!("the move to version {version} is paused; set spec.rollout.paused to false");
    Effects::held(Reason::Paused, message)
}

/// Another config is moved first. Its end is observed.
pub(super) fn waits_for(other: &str) -> Effects {
    let message = format!("config {other}, which shares pods with this one, is being moved");
    Effects::waits(Reason::WaitingFor, message, None)
}
