//! The rollout's next step: the status, what is seen of the pods, and the time in; the next status out.
//!
//! Pure, and nothing is remembered but the status: a leader that takes over goes on where the last one stopped. Each call makes at
//! most one step, and a call that changes nothing waits for something to be seen or for a time to come.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::Subject;
use super::batch::{is_complete, is_told, raised, size};
use super::subject::Opinion;
use crate::api::{
    OnFailure, Phase, PodRestarts, RolloutFailure, RolloutSpec, RolloutStage, SkippedPod, VersionedConfigStatus,
};

/// How often it is looked whether another config has done moving.
const NEIGHBOUR_SECONDS: u32 = 2;

/// Where the workloads without an agent stand, as far as they are restarted with what is published now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recycling {
    /// All of them run it, or there are none.
    Done,
    /// One of them is being restarted: a sentence.
    Busy(String),
    /// One of them did not come up: a sentence.
    Failed(String),
}

/// What is seen of a config.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// How it is to be moved.
    pub spec: &'a RolloutSpec,
    /// The generation of its spec.
    pub generation: i64,
    /// The version that is wanted, which can be moved to.
    pub wanted: &'a str,
    /// Its pods.
    pub pods: &'a [Subject],
    /// Another config that shares pods with it and is being moved.
    pub waiting_for: Option<&'a str>,
    /// The plain ConfigMap holds what it should, or can't.
    pub published: bool,
    /// Where the workloads without an agent stand.
    pub recycling: &'a Recycling,
    /// Now.
    pub now: &'a Time,
}

/// Why nothing moves, or what is waited for: a word and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A word.
    pub word: &'static str,
    /// A sentence.
    pub sentence: String,
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
            if target != seen.wanted {
                return begin_leaving(status, seen, &target);
            }
            if seen.spec.paused {
                status.phase = Phase::BeingCurrent;
                return held(
                    "Paused",
                    format!("the move to version {target} is paused; set spec.rollout.paused to false"),
                );
            }
            if let Some((word, sentence)) = verdict(status, seen, &target) {
                return fail(status, seen, &target, word, &sentence);
            }
            match stage {
                RolloutStage::Moving => walk(status, seen, &target),
                RolloutStage::Baking => bake(status, seen, &target),
                _ => recycle(status, seen, &target),
            }
        }
    }
}

fn held(word: &'static str, sentence: String) -> Step {
    Step { waits: Some(Reason { word, sentence }), held: true, ..Step::default() }
}

fn waits(word: &'static str, sentence: String, again: Option<Time>) -> Step {
    Step { waits: Some(Reason { word, sentence }), again, ..Step::default() }
}

fn after(time: &Time, seconds: u32) -> Time {
    // A time so far away that it can't be told never comes.
    time.0.checked_add(SignedDuration::from_secs(i64::from(seconds))).map_or_else(|_| time.clone(), Time)
}

/// The revision after this one. It begins at the time, so that it grows even where the status was lost: an agent never takes a lower
/// one.
pub fn next_revision(status: &mut VersionedConfigStatus, now: &Time) {
    let millis = u64::try_from(now.0.as_millisecond()).unwrap_or(0);
    status.rollout.revision = millis.max(status.rollout.revision + 1);
}

/// Nothing moves: is there something to move to?
fn rest(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Step {
    if current == seen.wanted {
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
        && failure.version == seen.wanted
        && failure.generation == seen.generation
    {
        status.phase = Phase::Failed;
        let sentence = format!(
            "version {} failed and {current} runs again: {}; set spec.current to another version, or to the same once more after another",
            failure.version, failure.message
        );
        return held("Failed", sentence);
    }
    if let Some(other) = seen.waiting_for {
        status.phase = Phase::Waiting;
        let again = after(seen.now, NEIGHBOUR_SECONDS);
        let sentence = format!("config {other}, which shares pods with this one, is being moved");
        return waits("WaitingFor", sentence, Some(again));
    }
    if seen.spec.paused {
        status.phase = Phase::BeingCurrent;
        status.target = Some(seen.wanted.to_owned());
        let wanted = seen.wanted;
        return held("Paused", format!("the move to version {wanted} is paused; set spec.rollout.paused to false"));
    }
    status.phase = Phase::BeingCurrent;
    status.target = Some(seen.wanted.to_owned());
    status.rollout.groups.clear();
    status.rollout.skipped.clear();
    status.rollout.restarts.clear();
    status.rollout.failure = None;
    status.rollout.began_at = Some(seen.now.clone());
    enter(status, RolloutStage::Moving, seen.now);
    let sentence = format!("moving {} pods from version {current} to {}", seen.pods.len(), seen.wanted);
    Step { told: Some((false, "BeingCurrent", sentence)), more: true, ..Step::default() }
}

fn enter(status: &mut VersionedConfigStatus, stage: RolloutStage, now: &Time) {
    status.rollout.stage = Some(stage);
    status.rollout.progressed_at = Some(now.clone());
    status.rollout.applied_at = None;
}

/// The first thing that a pod which is waited for says against the target.
fn verdict(status: &VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Option<(String, String)> {
    let rollout = &status.rollout;
    waited_for(status, seen).find_map(|pod| match pod.opinion(target, rollout) {
        Opinion::Against(word, sentence) => Some((word, sentence)),
        _ => None,
    })
}

fn skip(pod: &Subject, reason: &str) -> SkippedPod {
    SkippedPod { name: pod.name.clone(), uid: pod.uid.clone(), reason: reason.to_owned() }
}

fn is_skipped(status: &VersionedConfigStatus, pod: &Subject) -> bool {
    status.rollout.skipped.iter().any(|skipped| skipped.uid == pod.uid)
}

fn waited_for<'a>(status: &'a VersionedConfigStatus, seen: &'a Situation<'a>) -> impl Iterator<Item = &'a Subject> {
    let told = seen.pods.iter().filter(|pod| is_told(&status.rollout.groups, pod));
    told.filter(|pod| !is_skipped(status, pod))
}

/// One more batch, once the last one is proven.
fn walk(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    if let Some(step) = prove(status, seen, target) {
        return step;
    }
    if let Some((workload, count, batch)) = too_many_skipped(status, seen) {
        let name = if workload.is_empty() { "pods without a workload" } else { &workload };
        return held(
            "TooManySkipped",
            format!(
                "{count} pods of {name} could not be waited for, which is more than a batch of {batch}; see status.rollout.skipped, mend them, or set spec.rollout.batch higher"
            ),
        );
    }
    if is_complete(&status.rollout.groups, seen.pods) {
        enter(status, RolloutStage::Baking, seen.now);
        return Step { more: true, ..Step::default() };
    }
    let next = raised(&status.rollout.groups, seen.pods, &seen.spec.batch);
    let newly = |pod: &&Subject| is_told(&next, pod) && !is_told(&status.rollout.groups, pod);
    let newly: Vec<&Subject> = seen.pods.iter().filter(newly).collect();
    for pod in &newly {
        if let Some(reason) = pod.unfit(seen.now.0.as_second()) {
            status.rollout.skipped.push(skip(pod, reason));
        }
        if pod.restarts > 0 {
            status.rollout.restarts.push(PodRestarts { uid: pod.uid.clone(), count: pod.restarts });
        }
    }
    let count = newly.len();
    status.rollout.groups = next;
    enter(status, RolloutStage::Moving, seen.now);
    next_revision(status, seen.now);
    let told = (count > 0).then(|| (false, "Batch", format!("{count} more pods are told version {target}")));
    Step { told, again: Some(after(seen.now, seen.spec.ack_timeout_seconds)), more: count == 0, ..Step::default() }
}

/// Waits until all that are waited for run `version` and have been Ready for long enough; `None` once that is so.
fn prove(status: &mut VersionedConfigStatus, seen: &Situation<'_>, version: &str) -> Option<Step> {
    forget_gone(status, seen);
    // Whoever could not be waited for and has come round counts like the others from now on.
    let come_round = |skipped: &SkippedPod| {
        let pod = seen.pods.iter().find(|pod| pod.uid == skipped.uid);
        pod.is_some_and(|pod| pod.unfit(seen.now.0.as_second()).is_none() && pod.has_taken(version))
    };
    let rounds: Vec<String> = status
        .rollout
        .skipped
        .iter()
        .filter(|skipped| come_round(skipped))
        .map(|skipped| skipped.uid.clone())
        .collect();
    for uid in rounds {
        status.rollout.skipped.retain(|skipped| skipped.uid != uid);
        let restarts = seen.pods.iter().find(|pod| pod.uid == uid).map_or(0, |pod| pod.restarts);
        status.rollout.restarts.retain(|known| known.uid != uid);
        status.rollout.restarts.push(PodRestarts { uid, count: restarts });
    }
    // Of some nothing can be expected at the moment, such as those that were born and have no node yet.
    let lost: Vec<SkippedPod> =
        waited_for(status, seen).filter_map(|pod| Some(skip(pod, pod.unreachable()?))).collect();
    if !lost.is_empty() {
        status.rollout.skipped.extend(lost);
        return Some(Step { more: true, ..Step::default() });
    }
    let since = status.rollout.progressed_at.clone().unwrap_or_else(|| seen.now.clone());
    let (unproven, silent): (usize, Vec<SkippedPod>) = {
        let unproven: Vec<&Subject> =
            waited_for(status, seen).filter(|pod| pod.opinion(version, &status.rollout) != Opinion::Proven).collect();
        let late = seen.now.0 >= after(&since, seen.spec.ack_timeout_seconds).0;
        let silent = |pod: &&&Subject| late && pod.was_ready && !pod.has_taken(version);
        (unproven.len(), unproven.iter().filter(silent).map(|pod| skip(pod, "NotAcknowledged")).collect())
    };
    if !silent.is_empty() {
        status.rollout.skipped.extend(silent);
        return Some(Step { more: true, ..Step::default() });
    }
    if unproven > 0 {
        status.rollout.applied_at = None;
        let deadline = after(&since, seen.spec.progress_deadline_seconds);
        if seen.now.0 >= deadline.0 {
            return Some(overdue(status, seen, version, unproven));
        }
        let acknowledged = after(&since, seen.spec.ack_timeout_seconds);
        let again = if seen.now.0 < acknowledged.0 { acknowledged } else { deadline };
        let sentence = format!("{unproven} pods do not run version {version} yet, or are not Ready");
        return Some(waits("BeingCurrent", sentence, Some(again)));
    }
    // Without anybody there is nothing to watch.
    waited_for(status, seen).next()?;
    let applied = status.rollout.applied_at.get_or_insert_with(|| seen.now.clone()).clone();
    let enough = after(&applied, seen.spec.min_ready_seconds);
    if seen.now.0 < enough.0 {
        let sentence = format!("all pods that were told run version {version}; they are watched for a while");
        return Some(waits("BeingCurrent", sentence, Some(enough)));
    }
    None
}

/// The rollout stood still for too long.
fn overdue(status: &mut VersionedConfigStatus, seen: &Situation<'_>, version: &str, unproven: usize) -> Step {
    let seconds = seen.spec.progress_deadline_seconds;
    let message = format!("{unproven} pods did not come to run version {version}, Ready, within {seconds} s");
    fail(status, seen, version, "ProgressDeadlineExceeded".to_owned(), &message)
}

/// What is known of pods that are gone is dropped.
fn forget_gone(status: &mut VersionedConfigStatus, seen: &Situation<'_>) {
    let there = |uid: &str| seen.pods.iter().any(|pod| pod.uid == uid);
    status.rollout.skipped.retain(|skipped| there(&skipped.uid));
    status.rollout.restarts.retain(|known| there(&known.uid));
}

/// The workload of which more pods than a batch could not be waited for.
fn too_many_skipped(status: &VersionedConfigStatus, seen: &Situation<'_>) -> Option<(String, usize, usize)> {
    let skipped: Vec<&Subject> = seen.pods.iter().filter(|pod| is_skipped(status, pod)).collect();
    skipped.iter().find_map(|pod| {
        let workload = pod.workload.as_str();
        let of = |pods: &mut dyn Iterator<Item = &Subject>| pods.filter(|pod| pod.workload == workload).count();
        let count = of(&mut skipped.iter().copied());
        let batch = size(&seen.spec.batch, of(&mut seen.pods.iter()));
        (count > batch).then(|| (workload.to_owned(), count, batch))
    })
}

/// All pods run the target, and are watched.
fn bake(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    if !is_complete(&status.rollout.groups, seen.pods) {
        // A workload that came meanwhile: its pods are walked like the others.
        enter(status, RolloutStage::Moving, seen.now);
        return Step { more: true, ..Step::default() };
    }
    if let Some(step) = prove(status, seen, target) {
        return step;
    }
    let since = status.rollout.progressed_at.clone().unwrap_or_else(|| seen.now.clone());
    let end = after(&since, seen.spec.bake_seconds);
    // Without pods there is nothing to watch.
    if !seen.pods.is_empty() && seen.now.0 < end.0 {
        return waits(
            "Baking",
            format!("all pods run version {target}, which is watched until it is published"),
            Some(end),
        );
    }
    enter(status, RolloutStage::Recycling, seen.now);
    Step { more: true, ..Step::default() }
}

/// The target is published; workloads without an agent are restarted with it.
fn recycle(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    if !seen.published {
        return waits("Publishing", format!("version {target} is being published"), None);
    }
    match seen.recycling {
        Recycling::Done => make_current(status, seen, "all pods run it"),
        Recycling::Busy(sentence) => waits("Recycling", sentence.clone(), None),
        Recycling::Failed(sentence) => fail(status, seen, target, "RecycleFailed".to_owned(), sentence),
    }
}

fn clear(status: &mut VersionedConfigStatus) {
    let rollout = &mut status.rollout;
    rollout.stage = None;
    rollout.began_at = None;
    rollout.recycled_since = None;
    rollout.progressed_at = None;
    rollout.applied_at = None;
    rollout.groups.clear();
    rollout.skipped.clear();
    rollout.restarts.clear();
    status.target = None;
}

fn make_current(status: &mut VersionedConfigStatus, seen: &Situation<'_>, why: &str) -> Step {
    let before = status.current.replace(seen.wanted.to_owned());
    clear(status);
    status.rollout.failure = None;
    status.phase = Phase::Current;
    next_revision(status, seen.now);
    let sentence = match &before {
        Some(before) => format!("version {} is current, {before} was", seen.wanted),
        None => format!("version {} is current, {why}", seen.wanted),
    };
    if before.is_some() {
        status.previous = before;
    }
    Step { told: Some((false, "Current", sentence)), more: true, ..Step::default() }
}

/// The target is bad: every pod goes back, or all stands still, as the spec says.
fn fail(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str, word: String, sentence: &str) -> Step {
    if seen.spec.on_failure == OnFailure::Pause {
        return held(
            "Failed",
            format!(
                "{sentence}; the move stands still (onFailure: Pause): set spec.current to another version, or onFailure to Rollback"
            ),
        );
    }
    status.rollout.failure = Some(RolloutFailure {
        version: target.to_owned(),
        generation: seen.generation,
        reason: word,
        message: sentence.to_owned(),
    });
    status.phase = Phase::RollingBack;
    turn_back(status, seen, RolloutStage::RollingBack);
    let current = status.current.clone().unwrap_or_default();
    let told = (true, "RollingBack", format!("{sentence}; every pod returns to version {current}"));
    Step { told: Some(told), more: true, ..Step::default() }
}

fn begin_leaving(status: &mut VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Step {
    status.phase = Phase::BeingCurrent;
    turn_back(status, seen, RolloutStage::Leaving);
    let told = (
        false,
        "Leaving",
        format!(
            "version {target} is not wanted any more; pods leave it for {}",
            status.current.clone().unwrap_or_default()
        ),
    );
    Step { told: Some(told), more: true, ..Step::default() }
}

/// Every pod is told the current version again.
fn turn_back(status: &mut VersionedConfigStatus, seen: &Situation<'_>, stage: RolloutStage) {
    let groups = std::mem::take(&mut status.rollout.groups);
    if status.rollout.stage == Some(RolloutStage::Recycling) {
        status.rollout.recycled_since = status.rollout.progressed_at.clone();
    }
    enter(status, stage, seen.now);
    next_revision(status, seen.now);
    // Only pods that were told the target have something to leave, and only of those that are well it is waited for.
    status.rollout.restarts.clear();
    status.rollout.skipped = seen
        .pods
        .iter()
        .filter_map(|pod| {
            let reason = if is_told(&groups, pod) { pod.unreachable()? } else { return None };
            Some(skip(pod, reason))
        })
        .collect();
}

/// Waits until no pod runs the abandoned target any more; whoever takes too long is left behind. True once that is so.
fn all_back(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Result<(), Step> {
    forget_gone(status, seen);
    let since = status.rollout.progressed_at.clone().unwrap_or_else(|| seen.now.clone());
    let deadline = after(&since, seen.spec.progress_deadline_seconds);
    let target = status.target.as_deref();
    let away = seen.pods.iter().filter(|pod| !is_skipped(status, pod));
    let away =
        away.filter(|pod| pod.runs.as_deref() == target || (pod.in_contact && pod.runs.as_deref() != Some(current)));
    let away: Vec<&Subject> = away.collect();
    if away.is_empty() || seen.now.0 >= deadline.0 {
        return Ok(());
    }
    let sentence = format!("{} pods do not run version {current} again yet", away.len());
    Err(waits("RollingBack", sentence, Some(deadline)))
}

fn leave(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Step {
    if let Err(step) = all_back(status, seen, current) {
        return step;
    }
    if !seen.published {
        return waits("Publishing", format!("version {current} is being published again"), None);
    }
    if let Recycling::Busy(sentence) = seen.recycling {
        return waits("Recycling", sentence.clone(), None);
    }
    clear(status);
    next_revision(status, seen.now);
    Step { more: true, ..Step::default() }
}

fn roll_back(status: &mut VersionedConfigStatus, seen: &Situation<'_>, current: &str) -> Step {
    status.phase = Phase::RollingBack;
    if let Err(step) = all_back(status, seen, current) {
        return step;
    }
    if !seen.published {
        return waits("Publishing", format!("version {current} is being published again"), None);
    }
    if let Recycling::Busy(sentence) = seen.recycling {
        return waits("Recycling", sentence.clone(), None);
    }
    let failure = status.rollout.failure.clone();
    clear(status);
    next_revision(status, seen.now);
    status.phase = Phase::Failed;
    let sentence = failure.map(|failure| failure.message).unwrap_or_default();
    Step {
        told: Some((true, "Failed", format!("every pod runs version {current} again: {sentence}"))),
        more: true,
        ..Step::default()
    }
}

/// The version that the plain ConfigMap is to hold: the current one, except from the end of the bake on, when it is the target.
pub fn to_publish(status: &VersionedConfigStatus) -> Option<&str> {
    match (status.rollout.stage, &status.target) {
        (Some(RolloutStage::Recycling), Some(target)) => Some(target),
        _ => status.current.as_deref(),
    }
}
