//! The move to the target: steps, then the bake, then restarts of workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use nudge_api::{EvidenceStatus, OnFailure, Pods, Reason, Step, StepSelector, Watch};
use nudge_protocol::plural::{agreeing, counted};

use super::assignment::{Thresholds, selects};
use super::back::{begin_leaving, fail, roll_back, stopped_message};
use super::clock::{Millis, after, seconds};
use super::effects::Transition;
use super::idle::wait_for_config;
use super::judgement::Evidence;
use super::judgement::step_watch;
use super::judgement::{Tally, judge_filter};
use super::judgement::{Verdict, evidence_status, is_expected, reach_verdict};
use super::judgement::{analysis_statuses, analysis_wait, judge_analyses, question};
use super::record::still_applies;
use super::state::{Base, Idle, Rollout, Stage, Transfer};
use super::{Continuation, Effects, Now, Observation, Restarts, Subject};
use crate::analysis::{RoundJudgement, RoundVerdict, VersionNames};
use crate::event_record::EventRecord;

/// The time that harm is still looked for after a version became current.
const SUSPECT_WINDOW: Millis = 900_000;
/// The maximum time until the pods that judged are replaced: they end first, which takes 30 s by default.
const REPLACEMENT_TIMEOUT: Millis = 60_000;

/// Makes one transition of a move.
pub(super) fn advance(transfer: Transfer, evidence: &mut Evidence, observation: &Observation<'_>) -> Transition {
    if transfer.target != observation.requested {
        return begin_leaving(transfer, evidence, observation.now);
    }
    let is_in_steps = transfer.stage == Stage::Moving && !transfer.thresholds.is_all();
    if is_in_steps && observation.override_reason.is_some() {
        let (transfer, effects) = assign(transfer, Thresholds::all(), evidence, observation);
        return (Rollout::Forward(transfer), effects);
    }
    if let Some(effects) = observation.waiting_for.map(wait_for_config) {
        // Pods are not observed meanwhile: afterwards they must prove the target again.
        evidence.reset_after_gap();
        return (Rollout::Forward(transfer), effects);
    }
    if let Some(failure) = transfer.stopped_by.clone() {
        if observation.spec.on_failure == OnFailure::Rollback {
            return roll_back(transfer, failure, evidence, observation.now);
        }
        evidence.reset_after_gap();
        if let Some(trial) = &mut evidence.trial {
            trial.unpublished_since = None;
        }
        if still_applies(&failure, observation) {
            let effects = Effects::blocked(Reason::Failed, stopped_message(&failure.message, observation));
            return (Rollout::Forward(transfer), effects);
        }
    }
    // There is no failure, or it does not apply any more.
    let (transfer, assessment) = assess_pods(Transfer { stopped_by: None, ..transfer }, evidence, observation);
    let numbers = transfer.evidence.clone();
    let (rollout, effects) = judge_and_advance(transfer, &assessment, evidence, observation);
    let question = question(&rollout, evidence, observation);
    (rollout, Effects { evidence: numbers, question, ..effects })
}

/// Makes one transition of a move whose pods were observed.
fn judge_and_advance(
    transfer: Transfer,
    assessment: &Assessment,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> Transition {
    let Assessment { tally, judgement } = assessment;
    let judgement = judgement.as_ref();
    let now = observation.now;
    let watch_seconds = transfer.watch.as_ref().map_or(0, |watch| watch.seconds);
    let names = VersionNames { target: &transfer.target, current: &transfer.base.current };
    let effects = match reach_verdict(evidence, observation, names, watch_seconds) {
        Verdict::Bad(explanation) => return fail(transfer, evidence, observation, explanation),
        Verdict::Inconclusive { message, reconcile_at, expected } => {
            if !expected {
                evidence.unprove();
            }
            Some(Effects { reconcile_at, ..Continuation::Inconclusive(Reason::Inconclusive.explained(message)).into() })
        }
        Verdict::Clear => None,
    };
    let is_restarting = transfer.stage == Stage::Restarting;
    if let Some(RoundJudgement { verdict: RoundVerdict::Bad(message), .. }) = judgement.filter(|_| !is_restarting) {
        let cause = Reason::AnalysisFailed.explained(message.clone());
        return fail(transfer, evidence, observation, cause);
    }
    let harmed = effects.is_some();
    // Pods that are restarted are not Ready meanwhile; the restart has its own deadline.
    let wait = match effects {
        None if !is_restarting => unproven_wait(&transfer, tally, evidence, observation),
        effects => effects,
    };
    // Harm is observed without the hub, and has its deadline.
    if let Some(effects) = observation.hub_away_effects(tally.unreported()).filter(|_| !harmed && !is_restarting) {
        // The awaited change can't be observed: the time does not count.
        evidence.note_quiet(now.steady);
        let recheck_at = judgement.map(|judgement| now.steady + judgement.recheck_after);
        let effects = effects.reconcile_by(recheck_at).reconcile_by(evidence.ripens(watch_seconds, now.steady));
        return (Rollout::Forward(transfer), effects);
    }
    if let Some(mut effects) = wait {
        let deadline = evidence.deadline(tally.proven, seconds(observation.spec.progress_deadline_seconds), now.steady);
        if !effects.continuation.is_blocked() {
            if now.steady >= deadline {
                let cause = effects.continuation.explanation().map_or("", |cause| &cause.message);
                let message = format!("no progress within {} s: {cause}", observation.spec.progress_deadline_seconds);
                return fail(transfer, evidence, observation, Reason::ProgressDeadlineExceeded.explained(message));
            }
            effects = effects.reconcile_by(Some(deadline));
        }
        return (Rollout::Forward(transfer), effects.reconcile_by(evidence.ripens(watch_seconds, now.steady)));
    }
    evidence.note_quiet(now.steady);
    let (rollout, effects) = match transfer.stage {
        Stage::Moving => take_next_step(transfer, assessment, evidence, observation),
        Stage::Baking => bake(transfer, assessment, evidence, observation),
        Stage::Restarting => restart(transfer, evidence, observation),
    };
    (rollout, effects.reconcile_by(evidence.ripens(watch_seconds, now.steady)))
}

/// The assessment of the target by one observation of the pods.
struct Assessment {
    tally: Tally,
    /// The judgement of the answers to `spec.rollout.analysis`, if these matter now.
    judgement: Option<RoundJudgement>,
}

/// Observes the pods. Returns the move with its evidence for the status, and the assessment of the pods.
fn assess_pods(
    mut transfer: Transfer,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> (Transfer, Assessment) {
    evidence.collect_about(&transfer.target);
    evidence.note_hub(observation.hub_away, observation.now.steady);
    let assigned = |pod: &Subject| transfer.thresholds.is_assigned(pod);
    let is_first_step = transfer.step <= 1 && !transfer.thresholds.is_all();
    let min_ready_seconds = observation.spec.min_ready_seconds;
    let watch_all = || step_watch(observation.pods.iter(), is_first_step, min_ready_seconds);
    let watch_seconds = transfer.watch.as_ref().map_or_else(|| watch_all().seconds, |watch| watch.seconds);
    let stepped_at = transfer.stepped_at.as_ref().unwrap_or(observation.now.time).0.as_second();
    evidence.observe(observation, assigned, watch_seconds, stepped_at);
    let judging_pods: Vec<&Subject> =
        observation.pods.iter().filter(|pod| assigned(pod) && evidence.judges(pod)).collect();
    transfer.watch = Some(match &judging_pods[..] {
        [] => watch_all(),
        judging_pods => step_watch(judging_pods.iter().copied(), is_first_step, min_ready_seconds),
    });
    let tally = Tally::count(&transfer, evidence, observation);
    let judgement = judge_analyses(&transfer, evidence, observation);
    let analysis = analysis_statuses(&transfer, judgement.as_ref(), observation);
    transfer.evidence = Some(EvidenceStatus {
        not_waited_for: tally.not_waited_for,
        unchanged: tally.unchanged,
        analysis,
        ..evidence_status(evidence)
    });
    (transfer, Assessment { tally, judgement })
}

/// Returns the wait for the pods of the move.
fn unproven_wait(
    transfer: &Transfer,
    tally: &Tally,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> Option<Effects> {
    let Transfer { target, .. } = transfer;
    if tally.unproven() > 0 {
        if tally.fallen != tally.unproven() || !is_expected(evidence, observation, tally.fallen) {
            evidence.unprove();
        }
        let count = tally.unproven();
        let pods = format!("{} {}", counted(count, "pod"), agreeing(count, "does", "do"));
        let verb = agreeing(count, "is", "are");
        let message = format!("{pods} not run version {target} yet, or {verb} not Ready");
        let acknowledged = observation.now.steady + observation.longest_ack_timeout();
        return Some(Effects::wait(Reason::Progressing, message, Some(acknowledged)));
    }
    if tally.is_silent() {
        evidence.unprove();
        let silent = tally.silent;
        let judges = counted(tally.judges, "pod");
        let verb = agreeing(silent, "has", "have");
        let name = tally.first_silent.as_deref().unwrap_or_default();
        let message = format!("{silent} of {judges} (first: {name}) {verb} not acknowledged version {target} in time");
        return Some(Effects::wait(Reason::NotAcknowledged, message, None));
    }
    None
}

/// Assigns the target to the pods of one more step, once the last step was watched.
fn take_next_step(
    transfer: Transfer,
    Assessment { tally, judgement }: &Assessment,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> Transition {
    if transfer.thresholds.is_all() {
        if let Some(effects) = no_judge_wait(&transfer, tally, evidence, observation, None) {
            return (Rollout::Forward(transfer), effects);
        }
        return (Rollout::Forward(transfer.with_stage(Stage::Baking, observation.now)), Continuation::AtOnce.into());
    }
    let is_judge = judge_filter(&transfer, observation);
    let candidates = observation.pods.iter().any(&is_judge);
    let last = LastStep::of(&transfer, observation);
    let watched = if transfer.step > 0 {
        watch_wait(&transfer, &last, tally, evidence, observation)
            .or_else(|| analysis_wait(judgement.as_ref(), tally, observation))
    } else {
        None
    };
    if let Some(effects) = observation.gate_effects() {
        return (Rollout::Forward(transfer), watched.unwrap_or(effects));
    }
    if transfer.step > 0 && tally.judges == 0 {
        // The pods that have the target prove nothing: another pod of the step gets it, if the step has another pod.
        let selector = last.step.and_then(|step| step.selector.as_ref());
        let in_step = |pod: &Subject| is_judge(pod) && selector.is_none_or(|selector| selects(selector, pod));
        if observation.pods.iter().any(in_step) {
            let thresholds = transfer.thresholds.with_judge(observation.pods, selector, in_step);
            if thresholds != transfer.thresholds {
                let (transfer, effects) = assign(transfer, thresholds, evidence, observation);
                return (Rollout::Forward(transfer), effects);
            }
        }
        if let Some(effects) = no_judge_wait(&transfer, tally, evidence, observation, selector) {
            return (Rollout::Forward(transfer), effects);
        }
    }
    if let Some(effects) = watched {
        return (Rollout::Forward(transfer), effects);
    }
    let index = if last.in_part { last.count.saturating_sub(1) } else { last.count };
    let Step { name, pods, selector, .. } = step_at(index, observation);
    let mut thresholds = transfer.thresholds.raise_in_part(observation.pods, &pods, selector.as_ref());
    let is_assigned_next = |pod: &Subject| thresholds.is_assigned(pod);
    if tally.judges == 0
        && candidates
        && selector.is_none()
        && !observation.pods.iter().any(|pod| is_judge(pod) && is_assigned_next(pod))
    {
        thresholds = thresholds.with_judge(observation.pods, None, &is_judge);
    }
    let step = u32::try_from(index + 1).unwrap_or(u32::MAX);
    let stepped_at = transfer.stepped_at.or_else(|| Some(observation.now.time.clone()));
    let transfer = Transfer { step, step_name: name, stepped_at, ..transfer };
    let (transfer, effects) = assign(transfer, thresholds, evidence, observation);
    (Rollout::Forward(transfer), effects)
}

/// The step of the spec that went out last.
struct LastStep<'a> {
    /// The number of steps that went out, including this step.
    count: usize,
    /// The step in the spec; `None` for the step of all pods that follows the steps of the spec.
    step: Option<&'a Step>,
    /// Whether pods that restart in place have yet to be assigned the target in it.
    in_part: bool,
}

impl<'a> LastStep<'a> {
    fn of(transfer: &Transfer, observation: &Observation<'a>) -> Self {
        let count = count_steps_taken(transfer, observation);
        let step = count.checked_sub(1).and_then(|last| observation.spec.steps.get(last));
        Self { count, step, in_part: is_in_part(transfer, count, observation) }
    }
}

/// Returns how many steps of the spec went out. The last step is found by its name, because steps before it may have
/// been added or removed since. If that step was itself removed, only steps that pods have reached count. While two
/// steps have the same name, the rollout does not continue.
fn count_steps_taken(transfer: &Transfer, observation: &Observation<'_>) -> usize {
    let steps = &observation.spec.steps;
    let count = usize::try_from(transfer.step).unwrap_or(usize::MAX);
    let Some(name) = &transfer.step_name else { return count };
    if let Some(index) = steps.iter().position(|step| step.name.as_ref() == Some(name)) {
        return index + 1;
    }
    let reached = |step: &&Step| {
        let whole_step = transfer.thresholds.raise(observation.pods, &step.pods, step.selector.as_ref());
        observation.pods.iter().all(|pod| transfer.thresholds.is_assigned(pod) || !whole_step.is_assigned(pod))
    };
    steps.iter().take(count).take_while(reached).count()
}

/// Returns the step of this index; after the steps of the spec, the step of all pods.
fn step_at(index: usize, observation: &Observation<'_>) -> Step {
    observation.spec.steps.get(index).cloned().unwrap_or_else(|| Step::of(Pods::Share("100%".to_owned())))
}

/// Returns whether pods that restart in place have yet to be assigned the target in the step that has begun.
fn is_in_part(transfer: &Transfer, out: usize, observation: &Observation<'_>) -> bool {
    let Some(last) = out.checked_sub(1).filter(|_| observation.pods.iter().any(|pod| pod.is_in_place())) else {
        return false;
    };
    let Step { pods, selector, .. } = step_at(last, observation);
    let thresholds = &transfer.thresholds;
    let whole_part = transfer.thresholds.raise(observation.pods, &pods, selector.as_ref());
    observation
        .pods
        .iter()
        .any(|pod| pod.is_in_place() && pod.is_ready() && whole_part.is_assigned(pod) && !thresholds.is_assigned(pod))
}

/// Returns the wait while the last step is still watched, or nothing if no pod can be watched.
fn watch_wait(
    transfer: &Transfer,
    last: &LastStep<'_>,
    tally: &Tally,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> Option<Effects> {
    let now = observation.now;
    let since = evidence.proven_since(now.steady);
    let Watch { seconds: watch_seconds, reason, .. } = transfer.watch.as_ref()?;
    let pause = last.step.filter(|_| !last.in_part).map_or(0, |step| step.pause_seconds);
    let watch_end = since + if tally.judges == 0 { 0 } else { seconds(*watch_seconds) };
    let proven = proven_phrase(tally, observation);
    let target = &transfer.target;
    if now.steady < watch_end {
        let message = format!(
            "{proven} version {target} and {} watched for {watch_seconds} s, because {reason}{}",
            agreeing(tally.proven, "is", "are"),
            tally.silent_phrase()
        );
        return Some(Effects::wait(Reason::Progressing, message, Some(watch_end)));
    }
    let total_seconds = watch_seconds.saturating_add(pause);
    let watch_end = now
        .until_within(after(transfer.stepped_at.as_ref()?.0, total_seconds), since + seconds(total_seconds))
        .filter(|_| pause > 0)?;
    let name = last.step.and_then(|step| step.name.clone()).unwrap_or_else(|| last.count.to_string());
    let message = format!(
        "{proven} version {target}; step {name} pauses for {pause} s, as the spec says{}",
        tally.silent_phrase()
    );
    Some(Effects::wait(Reason::Progressing, message, Some(watch_end)))
}

/// Returns how many pods run the target, as the beginning of a message, such as `1 of 4 pods runs`.
fn proven_phrase(tally: &Tally, observation: &Observation<'_>) -> String {
    let total = counted(observation.pods.len(), "pod");
    format!("{} of {total} {}", tally.proven, agreeing(tally.proven, "runs", "run"))
}

/// Holds the move if no pod can say anything about the target, although some run, or did a moment ago.
fn no_judge_wait(
    transfer: &Transfer,
    tally: &Tally,
    evidence: &Evidence,
    observation: &Observation<'_>,
    selector: Option<&StepSelector>,
) -> Option<Effects> {
    if tally.judges > 0 || tally.is_unaffected() {
        return None;
    }
    let target = &transfer.target;
    let count = tally.not_waited_for;
    // Jobs may be done before anything is observed of them.
    if observation.pods.iter().all(|pod| pod.is_of_job() || pod.is_ending()) {
        let judged_at = evidence.trial.as_ref()?.judged_at?;
        let patience_end =
            Some(judged_at + REPLACEMENT_TIMEOUT).filter(|patience_end| observation.now.steady < *patience_end)?;
        let message = format!("the pods that showed whether version {target} is good are gone; others may follow");
        return Some(Effects::wait(Reason::Progressing, message, Some(patience_end)));
    }
    let total = counted(observation.pods.len(), "pod");
    let verb = agreeing(count, "has", "have");
    let scope = if selector.is_some() { "step's selector" } else { "config" };
    let message = format!(
        "no pod of the {scope} is healthy to judge version {target} ({count} of {total} {verb} it); repair one, \
         or run kubectl nudge rollback, or kubectl nudge use {target} --now"
    );
    Some(Effects::blocked(Reason::NobodyToJudge, message))
}

/// Assigns the target to the pods below these thresholds.
fn assign(
    transfer: Transfer,
    thresholds: Thresholds,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> (Transfer, Effects) {
    let now = observation.now;
    let newly = |pod: &&Subject| thresholds.is_assigned(pod) && !transfer.thresholds.is_assigned(pod);
    if thresholds == transfer.thresholds {
        return (transfer, Continuation::AtOnce.into());
    }
    evidence.step(now.steady);
    evidence.assign(observation.pods.iter().filter(newly), now.steady, now.time.0.as_second());
    // The status has the other steps: with an Event for each, most writes of a rollout would be Events.
    let count = observation.pods.iter().filter(newly).count();
    let event = observation.override_reason.filter(|_| count > 0).map(|cause| {
        let pods = counted(count, "more pod");
        let message = format!("version {} is assigned to {pods} at once: {cause}", transfer.target);
        EventRecord::new(Reason::Step, message)
    });
    let transfer = Transfer {
        base: transfer.base.reassigned(now.time),
        thresholds,
        progressed_at: MicroTime(now.time.0),
        stepped_at: Some(now.time.clone()),
        ..transfer
    };
    // The next transition has the numbers with these pods.
    (transfer, Effects { event, ..Continuation::AtOnce.into() })
}

/// Watches a move whose target all pods run.
fn bake(
    transfer: Transfer,
    Assessment { tally, judgement }: &Assessment,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> Transition {
    let now = observation.now;
    if let Some(effects) = no_judge_wait(&transfer, tally, evidence, observation, None) {
        return (Rollout::Forward(transfer), effects);
    }
    let since = evidence.proven_since(now.steady);
    let watch_seconds = transfer.watch.as_ref().map_or(0, |watch| watch.seconds);
    let watched = since + seconds(watch_seconds);
    let bake = seconds(observation.spec.bake_seconds);
    let baked = now.until_within(after(transfer.progressed_at.0, observation.spec.bake_seconds), since + bake);
    let bake_end = watched.max(baked.unwrap_or(now.steady));
    // Without pods there is nothing to watch.
    if tally.judges > 0 && now.steady < bake_end {
        let message = format!(
            "{} version {}, which is watched until it is current{}",
            proven_phrase(tally, observation),
            transfer.target,
            tally.silent_phrase()
        );
        return (Rollout::Forward(transfer), Effects::wait(Reason::Baking, message, Some(bake_end)));
    }
    if let Some(effects) = analysis_wait(judgement.as_ref(), tally, observation).or_else(|| observation.gate_effects())
    {
        return (Rollout::Forward(transfer), effects);
    }
    (Rollout::Forward(transfer.with_stage(Stage::Restarting, now)), Continuation::AtOnce.into())
}

/// Publishes the target if the spec requests it, and waits for restarts of workloads that take the target by a restart.
fn restart(transfer: Transfer, evidence: &mut Evidence, observation: &Observation<'_>) -> Transition {
    let now = observation.now;
    let failure = observation.publish_failure(&transfer.target);
    let since = evidence.unpublished_since(failure, now.steady);
    let deadline = observation.spec.progress_deadline_seconds;
    let overdue = since.map(|since| since + seconds(deadline));
    // A call that failed before the deadline may succeed now.
    if let Some(failure) = failure.filter(|failure| overdue.is_some_and(|overdue| failure.at >= overdue)) {
        let message = format!("no progress within {deadline} s: {}", failure.why.message);
        let explanation = Reason::ProgressDeadlineExceeded.explained(message);
        return fail(transfer, evidence, observation, explanation);
    }
    if let Some(effects) = observation.publish_wait(&transfer.target) {
        return (Rollout::Forward(transfer), effects);
    }
    let effects = match observation.restart {
        Restarts::Done => return make_current(transfer, evidence, now),
        Restarts::Busy(message) => Effects::wait(Reason::Restarting, message, None),
        Restarts::Blocked(message) => Effects::blocked(Reason::NotRestarted, message),
        Restarts::Failed(message) => {
            let explanation = Reason::RestartFailed.explained(message);
            return fail(transfer, evidence, observation, explanation);
        }
    };
    (Rollout::Forward(transfer), effects)
}

/// Makes the target, which is proven, the current version.
fn make_current(Transfer { base, target, .. }: Transfer, evidence: &mut Evidence, now: Now<'_>) -> Transition {
    evidence.suspect_until(now.steady + SUSPECT_WINDOW);
    let message = format!("version {target} is current, in place of {}", base.current);
    let base = Base { current: target, previous: Some(base.current), revision: base.revision }.reassigned(now.time);
    let event = EventRecord::new(Reason::Current, message);
    (Rollout::Current(Idle { base, failure: None }), Effects::event(event))
}
