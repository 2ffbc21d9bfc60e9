//! The record of releases: each transition of the rollout may add to `status.releases`.
//!
//! A release is open while its rollout lasts. So the record follows from the states before and after a transition, and
//! a new leader continues the stored record.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    Reason, Release, ReleaseOutcome, ReleaseOverride, ReleaseRequester, ReleaseStep, RolloutFailure, clipped,
};

use crate::requester::{Requester, Requesters};
use crate::rollout::state::{Cause, Return, Rollout, Transfer};
use crate::rollout::{Effects, Observation, Thresholds};

/// The maximum size in bytes of the releases in a status.
pub const MAX_RELEASES_BYTES: usize = 16 * 1024;

/// A transition of a rollout.
#[derive(Clone, Copy)]
pub struct RolloutChange<'a> {
    /// The state before the transition.
    pub before: &'a Rollout,
    /// The state after the transition.
    pub after: &'a Rollout,
}

/// Returns the releases after a transition.
pub fn record_release(
    mut releases: Vec<Release>,
    change: RolloutChange<'_>,
    effects: &Effects,
    observation: &Observation<'_>,
) -> Vec<Release> {
    let RolloutChange { before, after } = change;
    let now = observation.now.time;
    let subject = moved_version(after);
    let mut retried = false;
    if let Some(open) = open_release(&mut releases) {
        if let Rollout::Forward(transfer) = before {
            note_judgement(open, transfer, after, effects);
        }
        let same = subject
            .is_some_and(|(version, from)| open.version == version && open.from_version.as_deref() == Some(from));
        retried = same && open.outcome == Some(ReleaseOutcome::Held) && is_trying(after);
        if !same || retried {
            end_release(open, change, now);
        }
    }
    match (subject, before, after) {
        (None, Rollout::Initial { .. }, Rollout::Current(idle)) => {
            let mut first = new_release(&releases, &idle.base.current, None, now, observation);
            first.approvals = observation.approvals.to_vec();
            (first.end_time, first.outcome) = (Some(now.clone()), Some(ReleaseOutcome::Current));
            releases.push(first);
        }
        (Some((version, from)), ..) if open_release(&mut releases).is_none() => {
            let began = if retried { now } else { began_at(after).unwrap_or(now) };
            releases.push(new_release(&releases, version, Some(from.to_owned()), began, observation));
        }
        _ => {}
    }
    let overrider = requester(
        observation.requesters.overridden.as_ref(),
        releases.iter().filter_map(|release| release.overridden.as_ref()?.request_time.as_ref()),
        now,
    );
    if let Some(open) = open_release(&mut releases) {
        match after {
            Rollout::Forward(transfer) => {
                note_move(open, transfer, before, observation);
                // Approvals that are withdrawn afterwards have let the release come this far.
                if !observation.approvals.is_empty() {
                    open.approvals = observation.approvals.to_vec();
                }
                if let Some(reason) = observation.override_reason.filter(|_| open.overridden.is_none()) {
                    let (requested_by, request_time) =
                        overrider.map(|user| (user.user.clone(), user.at.clone())).unzip();
                    open.overridden = Some(ReleaseOverride { reason: reason.to_owned(), requested_by, request_time });
                }
            }
            Rollout::Back(Return { cause: Cause::RollingBack(failure), .. }) => note_failure(open, failure),
            Rollout::Back(Return { cause: Cause::Leaving(_), .. }) => note_leaving(open),
            Rollout::Back(Return { cause: Cause::Returning, .. }) if open.steps.is_empty() => {
                open.steps.push(ReleaseStep { start_time: now.clone(), pods: pod_count(observation.pods.len()) });
            }
            _ => {}
        }
    }
    let surplus = releases.len().saturating_sub(Release::MAX_RELEASES);
    releases.drain(..surplus);
    releases
}

/// Returns the releases that fit into this many bytes of JSON: older ones lose their details first, then the oldest are
/// forgotten. The newest release always stays, but without its details if it is too large alone.
pub fn fit_releases(mut releases: Vec<Release>, room: usize) -> Vec<Release> {
    // What can't be written counts as too large; the sum of all does not overflow.
    let bytes = |release: &Release| serde_json::to_string(release).map_or(usize::MAX / 64, |text| text.len() + 1);
    let mut total: usize = releases.iter().map(bytes).sum();
    let older = releases.len().saturating_sub(1);
    for release in &mut releases[..older] {
        if total <= room {
            return releases;
        }
        let full_bytes = bytes(release);
        strip(release);
        total -= full_bytes - bytes(release);
    }
    let mut gone = 0;
    while total > room && gone < older {
        total -= bytes(&releases[gone]);
        gone += 1;
    }
    releases.drain(..gone);
    releases.last_mut().filter(|_| total > room).into_iter().for_each(strip);
    releases
}

/// Removes the long fields.
fn strip(release: &mut Release) {
    release.steps.clear();
    release.approvals.clear();
    (release.evidence, release.message) = (None, None);
}

/// Returns the releases that `before` did not have.
pub fn new_releases<'a>(before: &'a [Release], after: &'a [Release]) -> impl Iterator<Item = &'a Release> {
    after.iter().filter(|release| !before.iter().any(|old| old.is_same(release)))
}

/// Returns the releases that have ended by `after` and had not by `before`.
pub fn newly_ended_releases<'a>(before: &'a [Release], after: &'a [Release]) -> impl Iterator<Item = &'a Release> {
    let was_over = |release: &Release| before.iter().any(|old| old.end_time.is_some() && old.is_same(release));
    after.iter().filter(move |release| release.end_time.is_some() && !was_over(release))
}

/// Returns how a release ended, for people.
pub fn release_summary(release: &Release) -> String {
    let Release { version, from_version, start_time, end_time, outcome, message, .. } = release;
    let from = from_version.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
    let by = match release.requester() {
        ReleaseRequester::User(user) => format!(", which {user} requested"),
        managers @ ReleaseRequester::Managers(_) => format!(", whose text {managers} wrote"),
        ReleaseRequester::Unknown => String::new(),
    };
    let outcome = outcome.map_or("open", ReleaseOutcome::as_str);
    let took = end_time.as_ref().map_or(0, |time| time.0.duration_since(start_time.0).as_secs().max(0));
    let cause = message.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
    format!("release {version}{from}{by}, ended after {took} s: {outcome}{cause}")
}

/// Returns the version that the rollout moves pods to, and the version before.
fn moved_version(rollout: &Rollout) -> Option<(&str, &str)> {
    match rollout {
        Rollout::Forward(transfer) => Some((&transfer.target, &transfer.base.current)),
        Rollout::Back(back) if back.cause == Cause::Returning => Some((&back.base.current, &back.target)),
        Rollout::Back(back) => Some((&back.target, &back.base.current)),
        _ => None,
    }
}

fn began_at(rollout: &Rollout) -> Option<&Time> {
    match rollout {
        Rollout::Forward(transfer) => Some(&transfer.began_at),
        Rollout::Back(back) => Some(&back.began_at),
        _ => None,
    }
}

/// Returns whether pods are moved to the target, which has not failed.
fn is_trying(rollout: &Rollout) -> bool {
    matches!(rollout, Rollout::Forward(transfer) if transfer.stopped_by.is_none())
}

fn open_release(releases: &mut [Release]) -> Option<&mut Release> {
    releases.last_mut().filter(|release| release.end_time.is_none())
}

/// Returns a release that begins, with the user who requested it, or else the managers that wrote its text.
fn new_release(
    releases: &[Release],
    version: &str,
    from: Option<String>,
    now: &Time,
    observation: &Observation<'_>,
) -> Release {
    let mut release = Release::new(version, from, now.clone());
    let Requesters { current, retry, .. } = observation.requesters;
    let latest = current.iter().chain(retry).max_by_key(|requester| requester.at.0);
    let before = releases.iter().filter_map(|release| release.request_time.as_ref());
    if let Some(requester) = requester(latest, before, observation.now.time) {
        release.requested_by = Some(requester.user.clone());
        release.request_time = Some(requester.at.clone());
    } else if observation.requested == version {
        release.unverified_managers = observation.text_managers.to_vec();
    }
    release
}

/// Returns the user who asked, unless there was a newer request before: then an older request was written back. A time
/// in the future comes from a wrong clock.
fn requester<'a, 'b>(
    requester: Option<&'a Requester>,
    before: impl Iterator<Item = &'b Time>,
    now: &Time,
) -> Option<&'a Requester> {
    let newest = before.map(|time| time.0).filter(|time| *time <= now.0).max();
    requester.filter(|requester| newest.is_none_or(|newest| newest <= requester.at.0))
}

/// Notes the numbers that judged the target, at a failure and at the end.
fn note_judgement(open: &mut Release, transfer: &Transfer, after: &Rollout, effects: &Effects) {
    let continues = matches!(after, Rollout::Forward(next) if next.stopped_by == transfer.stopped_by);
    // A move that was held keeps the numbers that it was held by.
    if !continues && open.outcome != Some(ReleaseOutcome::Held) {
        open.evidence = effects.evidence.clone().or_else(|| transfer.evidence.clone());
    }
}

fn note_failure(open: &mut Release, failure: &RolloutFailure) {
    open.reason = Some(failure.reason);
    open.message = Some(clipped(failure.message.clone()));
}

/// Notes why pods leave a release that had not failed.
fn note_leaving(open: &mut Release) {
    if open.reason.is_none() {
        open.reason = Some(Reason::Leaving);
        open.message = Some(format!("version {} is not requested any more", open.version));
    }
}

/// Notes steps that went out, and a failure that holds the move.
fn note_move(open: &mut Release, transfer: &Transfer, before: &Rollout, observation: &Observation<'_>) {
    if let Some(failure) = &transfer.stopped_by {
        note_failure(open, failure);
        open.outcome = Some(ReleaseOutcome::Held);
    }
    let (none, last) = (
        Thresholds::default(),
        match before {
            Rollout::Forward(last) if last.target == transfer.target => Some(last),
            _ => None,
        },
    );
    if transfer.thresholds == last.map_or(&none, |last| &last.thresholds).clone() {
        return;
    }
    let pods = pod_count(observation.pods.iter().filter(|pod| transfer.thresholds.is_assigned(pod)).count());
    // Pods that restart in place get a step in parts.
    let continues = last.is_some_and(|last| (last.step, &last.step_name) == (transfer.step, &transfer.step_name))
        && observation.override_reason.is_none();
    let full = open.steps.len() >= Release::MAX_STEPS;
    match open.steps.last_mut() {
        Some(step) if continues || full => step.pods = pods,
        _ => open.steps.push(ReleaseStep { start_time: observation.now.time.clone(), pods }),
    }
}

fn end_release(open: &mut Release, RolloutChange { before, after }: RolloutChange<'_>, now: &Time) {
    let current = after.base().is_some_and(|base| base.current == open.version);
    let failure = match (before, after) {
        (_, Rollout::Failed { failure, .. })
        | (Rollout::Back(Return { cause: Cause::RollingBack(failure), .. }), _) => Some(failure),
        _ => None,
    };
    open.end_time = Some(now.clone());
    open.outcome = Some(match (before, failure) {
        (Rollout::Back(Return { cause: Cause::Returning, .. }), _) if current => ReleaseOutcome::Returned,
        _ if current => ReleaseOutcome::Current,
        (_, Some(failure)) => {
            note_failure(open, failure);
            ReleaseOutcome::RolledBack
        }
        _ if is_trying(after) && open.outcome == Some(ReleaseOutcome::Held) => ReleaseOutcome::Held,
        _ => ReleaseOutcome::Left,
    });
    if open.outcome == Some(ReleaseOutcome::Left) {
        note_leaving(open);
    }
}

fn pod_count(pods: usize) -> u32 {
    u32::try_from(pods).unwrap_or(u32::MAX)
}
