//! A bad version fails and a good one becomes current, each in its time; every step is watched, and none goes out on
//! hold.

use nudge_api::{ConfigState, RolloutStage, VersionedConfigStatus};

use super::story::Story;
use super::{Property, Report};
use crate::history::{Harms, Stored, Time};

/// How long a rollout may take by itself, and wait for others with the same pods.
pub(super) const ROLLOUT_TIMEOUT_MILLIS: Time = 180_000;
/// By how much the record may be wrong about the time between two writes.
const RECORD_ERROR_MILLIS: Time = 1000;

pub(super) fn check(story: &Story<'_>, report: &mut Report) {
    for (config, all) in &story.configs {
        check_durations(config, all, report);
        check_holds(story, config, all, report);
        check_outcomes(story, config, all, report);
    }
}

/// Checks the time between two steps, and between the last one and the end.
fn check_durations(config: &str, all: &[(Time, Option<&Stored>)], report: &mut Report) {
    let mut stepped: Option<Time> = None;
    let mut baking: Option<Time> = None;
    for pair in all.windows(2) {
        let ((_, Some(before)), (at, Some(after))) = (pair[0], pair[1]) else { continue };
        let (old, new) = (&before.status, &after.status);
        if old.target_version != new.target_version {
            stepped = new.target_version.is_some().then_some(at);
        } else if new.rollout.step > old.rollout.step {
            if let Some(stepped) = stepped.filter(|_| old.rollout.step > 0) {
                report.outcome(Property::Dwell, too_soon(config, "a step", stepped, at, after.dwell));
            }
            stepped = Some(at);
        }
        if stage(old) != Some(RolloutStage::Baking) && stage(new) == Some(RolloutStage::Baking) {
            baking = Some(at);
        }
        let forward = new.current_version == old.target_version || stage(new) == Some(RolloutStage::Restarting);
        if stage(old) == Some(RolloutStage::Baking)
            && stage(new) != stage(old)
            && let Some(baking) = baking.take().filter(|_| forward)
        {
            report.outcome(Property::Dwell, too_soon(config, "the end of the bake", baking, at, after.bake));
        }
    }
}

fn stage(status: &VersionedConfigStatus) -> Option<RolloutStage> {
    status.rollout.stage
}

/// Checks that no version continues while the config is on hold. A status is written only to the spec that it was
/// decided from.
fn check_holds(story: &Story<'_>, config: &str, all: &[(Time, Option<&Stored>)], report: &mut Report) {
    for pair in all.windows(2) {
        let ((from, Some(before)), (at, Some(after))) = (pair[0], pair[1]) else { continue };
        if !before.held || !after.held || before.uid != after.uid || story.missed(from, at) {
            continue;
        }
        let (old, new) = (&before.status, &after.status);
        let forward = [RolloutStage::Moving, RolloutStage::Baking];
        let moves = |status| stage(status).is_some_and(|stage| forward.contains(&stage));
        let what = if !moves(old) && stage(new) == Some(RolloutStage::Moving) {
            Some("a rollout began")
        } else if moves(old) && old.target_version == new.target_version && new.rollout.step > old.rollout.step {
            Some("a step went out")
        } else if moves(old)
            && (stage(new) == Some(RolloutStage::Restarting) || new.current_version == old.target_version)
        {
            Some("a version was published")
        } else {
            None
        };
        report.outcome(Property::Hold, what.map(|what| (at, format!("{config}: {what} on hold"))));
    }
}

fn too_soon(config: &str, what: &str, from: Time, until: Time, least: Time) -> Option<(Time, String)> {
    let elapsed = until.saturating_sub(from);
    (elapsed + RECORD_ERROR_MILLIS < least)
        .then(|| (until, format!("{config}: {what} came after {elapsed} ms, and at least {least} are required")))
}

/// Checks what became of every version that was requested.
fn check_outcomes(story: &Story<'_>, config: &str, all: &[(Time, Option<&Stored>)], report: &mut Report) {
    let mut wishes: Vec<(usize, &str)> = Vec::new();
    let mut last: Option<(&str, &str)> = None;
    for (index, (_, stored)) in all.iter().enumerate() {
        let wish = stored.and_then(|stored| Some((stored.uid.as_str(), stored.wanted.as_deref()?)));
        if wish != last {
            wishes.extend(wish.map(|(_, version)| (index, version)));
            last = wish;
        }
    }
    for (number, &(from, version)) in wishes.iter().enumerate() {
        let until = wishes.get(number + 1).map_or(all.len(), |(next, _)| *next);
        let over = all.get(until).map_or(story.end, |(at, _)| *at);
        let Some(&bad) = story.bad.get(&(config, version)) else { continue };
        let uid = all[from].1.map_or("", |stored| &stored.uid);
        // Nobody has seen that another one was requested meanwhile: it has failed, and is not tried again.
        let failed = |status: &VersionedConfigStatus| {
            let failure = status.rollout.failure.as_ref();
            status.state() == ConfigState::Failed && failure.is_some_and(|failure| failure.version == version)
        };
        if all[from].1.is_some_and(|stored| failed(&stored.status)) {
            continue;
        }
        // Once it is gone, nothing becomes of it.
        let of_it = all[from..until].iter().map_while(|(at, stored)| Some((*at, stored.filter(|one| one.uid == uid)?)));
        let began = all[from].0;
        let mut end = None;
        for (at, stored) in of_it {
            let status = &stored.status;
            if status.observed_generation < all[from].1.map(|stored| stored.generation) {
                continue;
            }
            if status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version) {
                end = Some((at, true, String::new()));
            } else if failed(status) {
                let text =
                    status.rollout.failure.as_ref().map(|failure| format!("{}: {}", failure.reason, failure.message));
                end = Some((at, false, text.unwrap_or_default()));
            }
            if end.is_some() {
                break;
            }
        }
        let property = if bad { Property::Bad } else { Property::Good };
        let wrong = match end {
            Some((at, true, _)) if bad => Some((at, format!("{config} {version} is bad and became current"))),
            Some((at, false, said)) if !bad && !harmed(story, config, began, at) => {
                Some((at, format!("{config} {version} is good and failed: {said}")))
            }
            Some(_) => None,
            None => {
                let deadline = began + ROLLOUT_TIMEOUT_MILLIS + story.fault_time(began, over);
                if over < deadline {
                    // It was overtaken, and whatever comes after a bad one, it must not become current.
                    report.overtaken += 1;
                    if bad {
                        report.outcome(property, later_current(config, version, &all[from..]));
                    }
                    continue;
                }
                Some((deadline, format!("{config} {version}, requested at {began}, neither failed nor became current")))
            }
        };
        report.outcome(property, wrong);
    }
}

fn later_current(config: &str, version: &str, all: &[(Time, Option<&Stored>)]) -> Option<(Time, String)> {
    let current = |stored: &Stored| stored.status.current_version.as_deref() == Some(version);
    let (at, _) = all.iter().find(|(_, stored)| stored.is_some_and(current))?;
    Some((*at, format!("{config} {version} is bad, was overtaken, and became current")))
}

/// Returns whether something else harmed pods of the config meanwhile: a fault, or a bad version of another config that
/// they have.
fn harmed(story: &Story<'_>, config: &str, from: Time, until: Time) -> bool {
    let has = |pod: &&super::story::PodStory<'_>| pod.pod.configs.iter().any(|one| one == config);
    let faults = story.faults.iter().filter(|fault| fault.from <= until && fault.until >= from);
    let by_fault = faults.into_iter().any(|fault| match fault.harms {
        Harms::Nobody => false,
        Harms::Everybody => true,
        Harms::Pod(name) => story.pods.iter().filter(has).any(|pod| pod.pod.name == *name),
    });
    let mut shared = story.pods.iter().filter(has).flat_map(|pod| &pod.pod.configs).filter(|one| *one != config);
    by_fault
        || shared.any(|other| {
            let stored = story.configs.get(other.as_str()).into_iter().flatten();
            let meanwhile = stored.filter(|(at, _)| (from..=until).contains(at)).filter_map(|(_, stored)| *stored);
            meanwhile.into_iter().any(|stored| {
                let target = stored.status.target_version.as_deref().unwrap_or_default();
                story.bad.get(&(other.as_str(), target)).copied().unwrap_or_default()
            })
        })
}
