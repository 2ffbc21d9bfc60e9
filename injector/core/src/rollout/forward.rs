//! The move to the target: steps, then the bake, then restarts of workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use nudge_api::{EvidenceStatus, OnFailure, Pods, Reason, Step, StepSelector, Watch};

use super::acknowledgements::{Tally, could_judge};
use super::back::{begin_leaving, fail, roll_back, stands_still};
use super::clock::{Millis, after, seconds};
use super::effects::Transition;
use super::evidence::Evidence;
use super::idle::waits_for;
use super::measured::{measured, question, shown, waits};
use super::retry::still_applies;
use super::state::{Base, Idle, Move, Rollout, Stage};
use super::thresholds::{Thresholds, selects};
use super::verdict::{Names, Verdict, is_expected, numbers, verdict};
use super::watch_time::watch;
use super::{Effects, Now, Observation, Restarts, Subject};
use crate::analysis::{Judgement, Verdict as Measure};
use crate::event_record::EventRecord;

/// For how long harm is looked for after the version became current.
const SUSPECT_WINDOW: Millis = 900_000;
/// How long it may take until the pods that judged are replaced: they end first, which takes 30 s by default.
const REPLACEMENT_TIMEOUT: Millis = 60_000;

/// Makes one transition of a move.
pub(super) fn advance(
    moved: Move,
    stage: Stage,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Transition {
    if moved.target != seen.requested {
        return begin_leaving(moved, stage, evidence, now);
    }
    let at_once = seen.at_once.is_some() && stage == Stage::Moving && !moved.thresholds.is_all();
    if at_once {
        let (moved, effects) = assign(moved, Thresholds::all(), evidence, seen, now);
        return (Rollout::Forward(moved, stage), Effects { more: true, ..effects });
    }
    if let Some(effects) = seen.waiting_for.map(waits_for) {
        // Nobody looks meanwhile: afterwards the pods prove the target anew.
        evidence.reset_after_gap();
        return (Rollout::Forward(moved, stage), effects);
    }
    if let Some(failure) = moved.failure.clone() {
        if seen.spec.on_failure == OnFailure::Rollback {
            return roll_back(moved, stage, failure, evidence, now);
        }
        evidence.reset_after_gap();
        evidence.unpublished = None;
        if still_applies(&failure, seen) {
            let effects = Effects::held(Reason::Failed, stands_still(&failure.message));
            return (Rollout::Forward(moved, stage), effects);
        }
    }
    // There is no failure, or it does not apply any more.
    let (moved, tally, measured) = evaluate_pods(Move { failure: None, ..moved }, evidence, seen, now);
    let numbers = moved.evidence.clone();
    let (rollout, effects) = judge_and_advance(moved, (&tally, measured.as_ref()), stage, evidence, seen, now);
    let question = question(&rollout, evidence, seen, now);
    (rollout, Effects { numbers, question, ..effects })
}

/// Makes one transition of a move whose pods were looked at.
fn judge_and_advance(
    moved: Move,
    (tally, measured): (&Tally, Option<&Judgement>),
    stage: Stage,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Transition {
    let window = moved.watch.as_ref().map_or(0, |watch| watch.seconds);
    let names = Names { target: &moved.target, current: &moved.base.current };
    let effects = match verdict(evidence, seen, names, window, now.steady) {
        Verdict::Bad(explanation) => return fail(moved, stage, evidence, seen, now, explanation),
        Verdict::Inconclusive { message, look_again, expected } => {
            evidence.proven = evidence.proven.filter(|_| expected);
            Some(Effects { look_again, inconclusive: true, ..Effects::held(Reason::Inconclusive, message) })
        }
        Verdict::Clear => None,
    };
    if let Some(Judgement { verdict: Measure::Bad(message), .. }) = measured.filter(|_| stage != Stage::Restarting) {
        let why = Reason::AnalysisFailed.explained(message.clone());
        return fail(moved, stage, evidence, seen, now, why);
    }
    let harmed = effects.is_some();
    // Pods that are restarted are not Ready meanwhile; the restart has its own deadline.
    let waits = match stage {
        Stage::Restarting => effects,
        Stage::Moving | Stage::Baking => effects.or_else(|| unproven_wait(&moved, tally, evidence, seen, now)),
    };
    // Harm is seen without the hub, and has its deadline.
    let held = seen.without_hub(tally.owed() > 0).filter(|_| !harmed && stage != Stage::Restarting);
    if let Some(effects) = held {
        // What is waited for can't be seen: the time does not count.
        evidence.quiet.get_or_insert(now.steady);
        let again = measured.map(|judgement| now.steady + judgement.again);
        return (
            Rollout::Forward(moved, stage),
            effects.look_again_by(again).look_again_by(evidence.ripens(window, now.steady)),
        );
    }
    if let Some(mut effects) = waits {
        let deadline = deadline(tally, evidence, seen, now);
        if effects.has_deadline() {
            if now.steady >= deadline {
                let why = effects.waits_for.map_or_else(String::new, |why| why.message);
                let message = format!("no progress within {} s: {why}", seen.spec.progress_deadline_seconds);
                return fail(moved, stage, evidence, seen, now, Reason::ProgressDeadlineExceeded.explained(message));
            }
            effects = effects.look_again_by(Some(deadline));
        }
        return (Rollout::Forward(moved, stage), effects.look_again_by(evidence.ripens(window, now.steady)));
    }
    evidence.quiet.get_or_insert(now.steady);
    let (rollout, effects) = match stage {
        Stage::Moving => next_step(moved, (tally, measured), evidence, seen, now),
        Stage::Baking => bake(moved, (tally, measured), evidence, seen, now),
        Stage::Restarting => restart(moved, evidence, seen, now),
    };
    (rollout, effects.look_again_by(evidence.ripens(window, now.steady)))
}

/// Looks at the pods. Returns the move with what the status says of them, how many are where, and what was measured of them.
fn evaluate_pods(
    mut moved: Move,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> (Move, Tally, Option<Judgement>) {
    evidence.collect_about(&moved.target);
    evidence.note_hub(seen.hub_away.is_some(), now.steady);
    let assigned = |pod: &Subject| moved.thresholds.is_assigned(pod);
    let (first, shortest) = (moved.step <= 1 && !moved.thresholds.is_all(), seen.spec.min_ready_seconds);
    let window = moved.watch.as_ref().map_or_else(|| watch(seen.pods.iter(), first, shortest).seconds, |it| it.seconds);
    let stepped_at = moved.stepped_at.0.as_second();
    evidence.look(seen, assigned, window, stepped_at, now);
    let judges: Vec<&Subject> = seen.pods.iter().filter(|pod| assigned(pod) && evidence.judges(pod)).collect();
    moved.watch = Some(match &judges[..] {
        [] => watch(seen.pods.iter(), first, shortest),
        judges => watch(judges.iter().copied(), first, shortest),
    });
    let tally = Tally::count(&moved, evidence, seen, now);
    let measured = measured(&moved, evidence, seen, now);
    let analysis = shown(&moved, measured.as_ref(), seen);
    moved.evidence = Some(EvidenceStatus { not_waited_for: tally.not_waited_for, analysis, ..numbers(evidence) });
    (moved, tally, measured)
}

/// Returns what the move waits for from its pods.
fn unproven_wait(
    moved: &Move,
    tally: &Tally,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Option<Effects> {
    let Move { target, .. } = moved;
    if tally.unproven() > 0 {
        let expected = tally.fallen == tally.unproven() && is_expected(evidence, seen, tally.fallen);
        evidence.proven = evidence.proven.filter(|_| expected);
        let count = tally.unproven();
        let (pods, are) = if count == 1 { ("pod does", "is") } else { ("pods do", "are") };
        let message = format!("{count} {pods} not run version {target} yet, or {are} not Ready");
        let acknowledged = now.steady + seen.ack_patience();
        return Some(Effects::waits(Reason::Progressing, message, Some(acknowledged)));
    }
    if tally.is_silent() {
        evidence.proven = None;
        let (silent, judges) = (tally.silent, tally.judges);
        let name = tally.first_silent.as_deref().unwrap_or_default();
        let message =
            format!("{silent} of {judges} pods, {name} among them, have not acknowledged version {target} in time");
        return Some(Effects::waits(Reason::NotAcknowledged, message, None));
    }
    None
}

/// Returns when the move is overdue, unless it makes progress. Time in which the move was only watched does not count; and once that time is as long
/// as the move may wait, earlier waits do not count either.
fn deadline(tally: &Tally, evidence: &mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Millis {
    let at_most = seconds(seen.spec.progress_deadline_seconds);
    let (count, since) = evidence.progress.unwrap_or((0, now.steady));
    let watched = evidence.quiet.take().map_or(0, |quiet| now.steady - quiet.max(since));
    let progressed = tally.proven > count || watched >= at_most;
    let progress = if progressed { (tally.proven.max(count), now.steady) } else { (count, since + watched) };
    evidence.progress = Some(progress);
    progress.1 + at_most
}

/// Assigns the target to the pods of one more step, once the last step was watched.
fn next_step(
    moved: Move,
    (tally, measured): (&Tally, Option<&Judgement>),
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Transition {
    if moved.thresholds.is_all() {
        if let Some(effects) = nobody_judges(&moved, tally, evidence, seen, now, None) {
            return (Rollout::Forward(moved, Stage::Moving), effects);
        }
        let moved = Move { progressed_at: MicroTime(now.time.0), ..moved };
        return (Rollout::Forward(moved, Stage::Baking), Effects::run_again());
    }
    let before = moved.thresholds.clone();
    let judges = could_judge(&before, now);
    let candidates = seen.pods.iter().any(&judges);
    let last = LastStep::of(&moved, seen);
    let watched = if moved.step > 0 {
        watched(&moved, &last, tally, evidence, seen, now).or_else(|| waits(measured, tally, seen, now))
    } else {
        None
    };
    if let Some(effects) = seen.withheld() {
        return (Rollout::Forward(moved, Stage::Moving), watched.unwrap_or(effects));
    }
    if moved.step > 0 && tally.judges == 0 {
        // The pods that have it prove nothing: another one of the step is asked, if there is one.
        let selector = last.step.and_then(|step| step.selector.as_ref());
        let in_step = |pod: &Subject| judges(pod) && selector.is_none_or(|selector| selects(selector, pod));
        if seen.pods.iter().any(in_step) {
            let thresholds = moved.thresholds.with_one(seen.pods, selector, in_step);
            if thresholds != moved.thresholds {
                let (moved, effects) = assign(moved, thresholds, evidence, seen, now);
                return (Rollout::Forward(moved, Stage::Moving), effects);
            }
        }
        if let Some(effects) = nobody_judges(&moved, tally, evidence, seen, now, selector) {
            return (Rollout::Forward(moved, Stage::Moving), effects);
        }
    }
    if let Some(effects) = watched {
        return (Rollout::Forward(moved, Stage::Moving), effects);
    }
    let index = if last.in_part { last.count.saturating_sub(1) } else { last.count };
    let Step { name, pods, selector, .. } = step_at(index, seen);
    let mut thresholds = moved.thresholds.raised_in_part(seen.pods, &pods, selector.as_ref());
    let gets = |pod: &Subject| thresholds.is_assigned(pod);
    if tally.judges == 0 && candidates && selector.is_none() && !seen.pods.iter().any(|pod| judges(pod) && gets(pod)) {
        thresholds = thresholds.with_one(seen.pods, None, &judges);
    }
    let moved = Move { step: u32::try_from(index + 1).unwrap_or(u32::MAX), step_name: name, ..moved };
    let (moved, effects) = assign(moved, thresholds, evidence, seen, now);
    (Rollout::Forward(moved, Stage::Moving), effects)
}

/// The step of the spec that went out last.
struct LastStep<'a> {
    /// The number of steps that went out, with this one.
    count: usize,
    /// What the spec says of it, unless it is one after those of the spec.
    step: Option<&'a Step>,
    /// Whether pods that restart in place have yet to be assigned the target in it.
    in_part: bool,
}

impl<'a> LastStep<'a> {
    fn of(moved: &Move, seen: &Observation<'a>) -> Self {
        let count = steps_out(moved, seen);
        let step = count.checked_sub(1).and_then(|last| seen.spec.steps.get(last));
        Self { count, step, in_part: is_in_part(moved, count, seen) }
    }
}

/// Returns how many steps of the spec went out. The last one is found by its name, because steps before it may have been added or removed since.
/// Where that step itself was removed, the result passes over no step that pods have not reached. Nothing goes on where two steps have the same name.
fn steps_out(moved: &Move, seen: &Observation<'_>) -> usize {
    let (steps, count) = (&seen.spec.steps, usize::try_from(moved.step).unwrap_or(usize::MAX));
    let Some(name) = &moved.step_name else { return count };
    if let Some(at) = steps.iter().position(|step| step.name.as_ref() == Some(name)) {
        return at + 1;
    }
    let reached = |step: &&Step| {
        let whole = moved.thresholds.raised(seen.pods, &step.pods, step.selector.as_ref());
        seen.pods.iter().all(|pod| moved.thresholds.is_assigned(pod) || !whole.is_assigned(pod))
    };
    steps.iter().take(count).take_while(reached).count()
}

/// Returns the step of this index; after those of the spec, the step of all pods.
fn step_at(index: usize, seen: &Observation<'_>) -> Step {
    seen.spec.steps.get(index).cloned().unwrap_or_else(|| Step::of(Pods::Share("100%".to_owned())))
}

/// Returns whether pods that restart in place have yet to be assigned the target in the step that has begun.
fn is_in_part(moved: &Move, out: usize, seen: &Observation<'_>) -> bool {
    let Some(last) = out.checked_sub(1).filter(|_| seen.pods.iter().any(|pod| pod.in_place)) else { return false };
    let Step { pods, selector, .. } = step_at(last, seen);
    let (has, whole) = (&moved.thresholds, moved.thresholds.raised(seen.pods, &pods, selector.as_ref()));
    seen.pods.iter().any(|pod| pod.in_place && pod.ready && whole.is_assigned(pod) && !has.is_assigned(pod))
}

/// Returns what the last step is still watched for, or nothing where no pod can be watched.
fn watched(
    moved: &Move,
    last: &LastStep<'_>,
    tally: &Tally,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Option<Effects> {
    let since = *evidence.proven.get_or_insert(now.steady);
    let Watch { seconds: window, reason, .. } = moved.watch.as_ref()?;
    let pause = last.step.filter(|_| !last.in_part).map_or(0, |step| step.pause_seconds);
    let end = since + if tally.judges == 0 { 0 } else { seconds(*window) };
    let (proven, all, target) = (tally.proven, seen.pods.len(), &moved.target);
    if now.steady < end {
        let message = format!(
            "{proven} of {all} pods run version {target} and are watched for {window} s, because {reason}{}",
            tally.without_silent()
        );
        return Some(Effects::waits(Reason::Progressing, message, Some(end)));
    }
    let whole = window.saturating_add(pause);
    let end = now.until_within(after(moved.stepped_at.0, whole), since + seconds(whole)).filter(|_| pause > 0)?;
    let name = last.step.and_then(|step| step.name.clone()).unwrap_or_else(|| last.count.to_string());
    let message = format!(
        "{proven} of {all} pods run version {target}; step {name} pauses for {pause} s, as the spec says{}",
        tally.without_silent()
    );
    Some(Effects::waits(Reason::Progressing, message, Some(end)))
}

/// Holds the move where no pod can say anything about the target, although some run, or did a moment ago.
fn nobody_judges(
    moved: &Move,
    tally: &Tally,
    evidence: &Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
    selector: Option<&StepSelector>,
) -> Option<Effects> {
    if tally.judges > 0 {
        return None;
    }
    let (target, count) = (&moved.target, tally.not_waited_for);
    // Jobs may be done before anything is seen of them.
    if seen.pods.iter().all(|pod| pod.is_of_job() || pod.ending) {
        let end = evidence.judged.map(|judged| judged + REPLACEMENT_TIMEOUT).filter(|end| now.steady < *end)?;
        let message = format!("the pods that showed whether version {target} is good are gone; others may follow");
        return Some(Effects::waits(Reason::Progressing, message, Some(end)));
    }
    let all = seen.pods.len();
    let of = if selector.is_some() { "step's selector" } else { "config" };
    let message = format!(
        "no pod of the {of} is healthy, so none can show whether version {target} is good. {count} of {all} pods have it: the rollout \
         goes on when one of them becomes and stays healthy. Or go back (kubectl nudge rollback), or assign the version to all pods \
         (kubectl nudge use {target} --now --reason TEXT)"
    );
    Some(Effects::held(Reason::NobodyToJudge, message))
}

/// Assigns the target to the pods below these thresholds.
fn assign(
    moved: Move,
    thresholds: Thresholds,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> (Move, Effects) {
    let newly = |pod: &&Subject| thresholds.is_assigned(pod) && !moved.thresholds.is_assigned(pod);
    if thresholds == moved.thresholds {
        return (moved, Effects::run_again());
    }
    evidence.step(now.steady);
    evidence.assign(seen.pods.iter().filter(newly), now.steady, now.time.0.as_second());
    // The status has the other steps: with an Event for each, most writes of a rollout would be Events.
    let count = seen.pods.iter().filter(newly).count();
    let event = seen.at_once.filter(|_| count > 0).map(|why| {
        let pods = if count == 1 { "pod" } else { "pods" };
        let message = format!("version {} is assigned to {count} more {pods} at once: {why}", moved.target);
        EventRecord::new(Reason::Step, message)
    });
    let moved = Move {
        base: moved.base.reassigned(now.time),
        thresholds,
        progressed_at: MicroTime(now.time.0),
        stepped_at: now.time.clone(),
        ..moved
    };
    // The next look has the numbers with these pods.
    (moved, Effects { event, ..Effects::run_again() })
}

/// Watches a move whose target all pods run.
fn bake(
    moved: Move,
    (tally, measured): (&Tally, Option<&Judgement>),
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Transition {
    if let Some(effects) = nobody_judges(&moved, tally, evidence, seen, now, None) {
        return (Rollout::Forward(moved, Stage::Baking), effects);
    }
    let since = *evidence.proven.get_or_insert(now.steady);
    let window = moved.watch.as_ref().map_or(0, |watch| watch.seconds);
    let watched = since + seconds(window);
    let bake = seconds(seen.spec.bake_seconds);
    let baked = now.until_within(after(moved.progressed_at.0, seen.spec.bake_seconds), since + bake);
    let end = watched.max(baked.unwrap_or(now.steady));
    // Without pods there is nothing to watch.
    if tally.judges > 0 && now.steady < end {
        let (proven, all) = (tally.proven, seen.pods.len());
        let message = format!(
            "{proven} of {all} pods run version {}, which is watched until it is current{}",
            moved.target,
            tally.without_silent()
        );
        return (Rollout::Forward(moved, Stage::Baking), Effects::waits(Reason::Baking, message, Some(end)));
    }
    if let Some(effects) = waits(measured, tally, seen, now).or_else(|| seen.withheld()) {
        return (Rollout::Forward(moved, Stage::Baking), effects);
    }
    let moved = Move { progressed_at: MicroTime(now.time.0), ..moved };
    (Rollout::Forward(moved, Stage::Restarting), Effects::run_again())
}

/// Publishes the target where the spec asks for it, and waits for restarts of workloads that take the target by a restart.
fn restart(moved: Move, evidence: &mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Transition {
    let why = seen.not_published(&moved.target);
    let since = why.map(|_| evidence.unpublished.unwrap_or(now.steady));
    evidence.unpublished = since;
    let deadline = seen.spec.progress_deadline_seconds;
    let overdue = since.map(|since| since + seconds(deadline));
    // What failed before the deadline may succeed now.
    let tried = seen.published.map_or(0, |attempt| attempt.at);
    if let Some(why) = why.filter(|_| overdue.is_some_and(|overdue| tried >= overdue)) {
        let message = format!("no progress within {deadline} s: {}", why.message);
        let why = Reason::ProgressDeadlineExceeded.explained(message);
        return fail(moved, Stage::Restarting, evidence, seen, now, why);
    }
    if let Some(effects) = seen.publishing(&moved.target) {
        return (Rollout::Forward(moved, Stage::Restarting), effects);
    }
    let effects = match seen.restart {
        Restarts::Done => return current(moved, evidence, now),
        Restarts::Busy(message) => Effects::waits(Reason::Restarting, message, None),
        Restarts::Held(message) => Effects::held(Reason::NotRestarted, message),
        Restarts::Failed(message) => {
            let why = Reason::RestartFailed.explained(message);
            return fail(moved, Stage::Restarting, evidence, seen, now, why);
        }
    };
    (Rollout::Forward(moved, Stage::Restarting), effects)
}

/// Makes the target, which is proven, the current version.
fn current(Move { base, target, .. }: Move, evidence: &mut Evidence, now: Now<'_>) -> Transition {
    evidence.suspected_until = Some(now.steady + SUSPECT_WINDOW);
    let message = format!("version {target} is current, in place of {}", base.current);
    let base = Base { current: target, previous: Some(base.current), revision: base.revision }.reassigned(now.time);
    let event = EventRecord::new(Reason::Current, message);
    (Rollout::Current(Idle { base, failure: None }), Effects::event(event))
}
