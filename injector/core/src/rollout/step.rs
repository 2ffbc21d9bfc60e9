//! The rollout's next step: the status, what is seen of the pods, and the time in; the next status out.
//!
//! Pure, and nothing is remembered but the status: a leader that takes over goes on where the last one stopped. Each call makes at
//! most one step, and a call that changes nothing waits for something to be seen or for a time to come.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nudge_api::{Batch, GroupStatus, Phase, RolloutSpec, RolloutStage, VersionedConfigStatus};

use super::back::{begin_leaving, fail, leave, return_to, roll_back, stands_still};
use super::batch::{is_complete, is_told, raised, with_one};
use super::hold::hold;
use super::proof::{anybody_judges, prove, skip, tend, verdict};
use super::subject::JOBS;
use super::{Subject, restarts};

/// How often it is looked whether another config has done moving.
const NEIGHBOUR_SECONDS: u32 = 2;

/// Where the workloads stand that take the version by a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// All of them run it, or there are none.
    Done,
    /// One of them is being restarted: a sentence.
    Busy(String),
    /// One of them did not come up: a sentence.
    Failed(String),
    /// Processes that take a version by a restart alone were not restarted, and somebody must act: a sentence.
    Held(String),
}

/// What is seen of a config.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// How it is to be moved.
    pub spec: &'a RolloutSpec,
    /// The generation of its spec.
    pub generation: i64,
    /// The version that is wanted, which can be moved to.
    pub desired: &'a str,
    /// Its pods.
    pub pods: &'a [Subject],
    /// Another config that shares pods with it and is being moved.
    pub waiting_for: Option<&'a str>,
    /// The plain ConfigMap holds what it should, or can't.
    pub published: bool,
    /// Where the workloads that are restarted stand.
    pub restart: &'a Restarts,
    /// Now.
    pub now: &'a Time,
}

/// Why nothing moves, or what is waited for: a word and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A word.
    pub word: &'static str,
    /// A sentence.
    pub message: String,
}

/// What a step has come to. The status holds the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What is worth an Event: whether somebody should act, a word, a sentence.
    pub told: Option<(bool, &'static str, String)>,
    /// What is waited for.
    pub waits: Option<Reason>,
    /// It is held until somebody acts.
    pub held: bool,
    /// When to look again although nothing is seen to change.
    pub again: Option<Time>,
    /// There may be another step at once.
    pub more: bool,
}

/// Makes the next step.
pub fn step(status: &mut VersionedConfigStatus, seen: &Situation<'_>) -> Step {
    let Some(current) = status.current.clone() else {
        return make_current(status, seen, "the first one");
    };
    // A brake: it asks for nobody's health, and waits neither for a pause to end nor for another config.
    if status.previous.as_deref() == Some(seen.desired) && current != seen.desired {
        return return_to(status, seen, &current);
    }
    match status.rollout.stage {
        None => rest(status, seen, &current),
        Some(RolloutStage::Leaving) => leave(status, seen, &current),
        Some(RolloutStage::RollingBack) => roll_back(status, seen, &current),
        Some(stage) => {
            let Some(target) = status.target.clone() else {
                // A status that somebody has edited: begin anew.
                status.rollout.stage = None;
                return Step { more: true, ..Step::default() };
            };
            if target != seen.desired {
                return begin_leaving(status, seen, &target);
            }
            if seen.spec.paused {
                status.phase = Phase::Progressing;
                // Nobody looks meanwhile: what was is proven once more.
                status.rollout.applied_at = None;
                status.rollout.unproven_since = None;
                return held(
                    "Paused",
                    format!("the move to version {target} is paused; set spec.rollout.paused to false"),
                );
            }
            match &status.rollout.failure {
                Some(failure) if failure.version == target && failure.generation == seen.generation => {
                    return held("Failed", stands_still(&failure.message));
                }
                // Whoever has changed the spec wants it tried again.
                _ => status.rollout.failure = None,
            }
            tend(status, seen, &target);
            if let Some((word, message)) = verdict(status, seen, &target) {
                return fail(status, seen, &target, word, &message);
            }
            match stage {
                RolloutStage::Moving => walk(status, seen, &target),
                RolloutStage::Baking => bake(status, seen, &target),
                _ => restart(status, seen, &target),
            }
        }
    }
}

pub(super) fn held(word: &'static str, message: String) -> Step {
    Step { waits: Some(Reason { word, message }), held: true, ..Step::default() }
}

pub(super) fn waits(word: &'static str, message: String, again: Option<Time>) -> Step {
    Step { waits: Some(Reason { word, message }), again, ..Step::default() }
}

/// The time so long after another.
pub(super) fn after(time: Timestamp, seconds: u32) -> Time {
    // A time so far away that it can't be told never comes.
    Time(time.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX))
}

/// When the rollout last came forward.
pub(super) fn progressed(status: &VersionedConfigStatus, now: &Time) -> Timestamp {
    status.rollout.progressed_at.as_ref().map_or(now.0, |time| time.0)
}

/// The revision after this one. It begins at the time, so that it grows even where the status was lost: an agent never takes a lower
/// one.
pub(super) fn next_revision(status: &mut VersionedConfigStatus, now: &Time) {
    let millis = u64::try_from(now.0.as_millisecond()).unwrap_or(0);
    status.rollout.revision = millis.max(status.rollout.revision + 1);
}

/// Nothing moves: is there something to move to?
fn rest(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Step {
    if current == seen.desired {
        let was = std::mem::replace(&mut status.phase, Phase::Current);
        if status.target.take().is_some() || !status.rollout.groups.is_empty() {
            status.rollout.groups.clear();
            next_revision(status, seen.now);
        }
        if status.rollout.failure.as_ref().is_some_and(|failure| failure.generation != seen.generation) {
            status.rollout.failure = None;
        }
        return Step { more: was != Phase::Current, ..Step::default() };
    }
    if let Some(failure) = &status.rollout.failure
        && failure.version == seen.desired
        && failure.generation == seen.generation
    {
        status.phase = Phase::Failed;
        let message = format!(
            "version {} failed and {current} runs again: {}; mend it as a new version and set spec.current to that, or back to {current}; \
             any change of spec tries {} again",
            failure.version, failure.message, failure.version
        );
        return held("Failed", message);
    }
    if let Some(other) = seen.waiting_for {
        status.phase = Phase::Waiting;
        let again = after(seen.now.0, NEIGHBOUR_SECONDS);
        let message = format!("config {other}, which shares pods with this one, is being moved");
        return waits("WaitingFor", message, Some(again));
    }
    if seen.spec.paused {
        status.phase = Phase::Progressing;
        status.target = Some(seen.desired.to_owned());
        let desired = seen.desired;
        return held("Paused", format!("the move to version {desired} is paused; set spec.rollout.paused to false"));
    }
    status.phase = Phase::Progressing;
    status.target = Some(seen.desired.to_owned());
    status.rollout.groups.clear();
    status.rollout.skipped.clear();
    restarts::clear(&mut status.rollout);
    status.rollout.failure = None;
    status.rollout.began_at = Some(seen.now.clone());
    enter(status, RolloutStage::Moving, seen.now);
    let message = format!("moving {} pods from version {current} to {}", seen.pods.len(), seen.desired);
    Step { told: Some((false, "Progressing", message)), more: true, ..Step::default() }
}

pub(super) fn enter(status: &mut VersionedConfigStatus, stage: RolloutStage, now: &Time) {
    status.rollout.stage = Some(stage);
    status.rollout.progressed_at = Some(MicroTime(now.0));
    status.rollout.applied_at = None;
    status.rollout.watch = None;
    status.rollout.unproven_since = None;
}

/// One more batch, once the last one is proven.
fn walk(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    if let Some(step) = prove(status, seen, target) {
        return step;
    }
    if let Some(step) = hold(status, seen, target) {
        return step;
    }
    if is_complete(&status.rollout.groups, seen.pods) {
        // What was Ready for long enough need not be so once more.
        let applied = status.rollout.applied_at.take();
        enter(status, RolloutStage::Baking, seen.now);
        status.rollout.applied_at = applied;
        return Step { more: true, ..Step::default() };
    }
    // One pod, until one has proven something: those before it may have gone meanwhile.
    let next = if seen.spec.batch.is_none() && !anybody_judges(status, seen) {
        let now = seen.now.0.as_second();
        with_one(&status.rollout.groups, seen.pods, |pod| pod.unfit(now).is_none() && pod.workload != JOBS)
    } else {
        raised(&status.rollout.groups, seen.pods, seen.spec.batch.as_ref())
    };
    let count = tell(status, seen, next);
    enter(status, RolloutStage::Moving, seen.now);
    told(count, target, seen)
}

/// The pods below these thresholds are told. How many that are.
fn tell(status: &mut VersionedConfigStatus, seen: &Situation<'_>, next: Vec<GroupStatus>) -> usize {
    let newly = |pod: &&Subject| is_told(&next, pod) && !is_told(&status.rollout.groups, pod);
    let newly: Vec<&Subject> = seen.pods.iter().filter(newly).collect();
    let unfit = |pod: &Subject| pod.unfit(seen.now.0.as_second());
    status.rollout.skipped.extend(newly.iter().filter_map(|pod| Some(skip(pod, unfit(pod)?, true))));
    let waited_for: Vec<&Subject> = newly.iter().copied().filter(|pod| unfit(pod).is_none()).collect();
    restarts::remember(&mut status.rollout, &waited_for);
    status.rollout.groups = next;
    next_revision(status, seen.now);
    newly.len()
}

fn told(count: usize, target: &str, seen: &Situation<'_>) -> Step {
    let told = (count > 0).then(|| {
        (
            false,
            "Batch",
            format!("{count} more {} told version {target}", if count == 1 { "pod is" } else { "pods are" }),
        )
    });
    Step { told, again: Some(after(seen.now.0, seen.spec.ack_timeout_seconds)), more: count == 0, ..Step::default() }
}

/// All pods run the target, and are watched.
fn bake(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    if !is_complete(&status.rollout.groups, seen.pods) {
        // A workload that came meanwhile was born into what all others run: it is told at once. Walking it would begin the bake anew, and
        // where workloads come and go, again and again.
        let next = raised(&status.rollout.groups, seen.pods, Some(&Batch::Share("100%".to_owned())));
        let count = tell(status, seen, next);
        status.rollout.applied_at = None;
        return told(count, target, seen);
    }
    if let Some(step) = prove(status, seen, target) {
        return step;
    }
    if let Some(step) = hold(status, seen, target) {
        return step;
    }
    let end = after(progressed(status, seen.now), seen.spec.bake_seconds);
    // Without pods there is nothing to watch.
    if !seen.pods.is_empty() && seen.now.0 < end.0 {
        return waits(
            "Baking",
            format!("all pods run version {target}, which is watched until it is published"),
            Some(end),
        );
    }
    enter(status, RolloutStage::Restarting, seen.now);
    Step { more: true, ..Step::default() }
}

/// The target is published; workloads that take it by a restart are restarted.
fn restart(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    if !seen.published {
        return waits("Publishing", format!("version {target} is being published"), None);
    }
    match seen.restart {
        Restarts::Done => make_current(status, seen, "all pods run it"),
        Restarts::Busy(message) => waits("Restarting", message.clone(), None),
        Restarts::Held(message) => held("NotRestarted", message.clone()),
        Restarts::Failed(message) => fail(status, seen, target, "RestartFailed".to_owned(), message),
    }
}

pub(super) fn clear(status: &mut VersionedConfigStatus) {
    let rollout = &mut status.rollout;
    rollout.stage = None;
    rollout.began_at = None;
    rollout.workloads_restarted_at = None;
    rollout.progressed_at = None;
    rollout.applied_at = None;
    rollout.unproven_since = None;
    rollout.watch = None;
    rollout.groups.clear();
    rollout.skipped.clear();
    restarts::clear(rollout);
    status.target = None;
}

fn make_current(status: &mut VersionedConfigStatus, seen: &Situation<'_>, why: &str) -> Step {
    let before = status.current.replace(seen.desired.to_owned());
    clear(status);
    status.rollout.failure = None;
    status.phase = Phase::Current;
    next_revision(status, seen.now);
    let message = match &before {
        Some(before) => format!("version {} is current, {before} was", seen.desired),
        None => format!("version {} is current, {why}", seen.desired),
    };
    if before.is_some() {
        status.previous = before;
    }
    Step { told: Some((false, "Current", message)), more: true, ..Step::default() }
}

/// The version that the plain ConfigMap is to hold: the current one, except from the end of the bake on, when it is the target.
pub fn to_publish(status: &VersionedConfigStatus) -> Option<&str> {
    match (status.rollout.stage, &status.target) {
        (Some(RolloutStage::Restarting), Some(target)) => Some(target),
        _ => status.current.as_deref(),
    }
}
