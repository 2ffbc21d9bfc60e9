//! No application sees a version that was not assigned to it, or goes back in revision.
//!
//! The readings of a pod, in order, must be found among its assignments in order: an agent may skip some, and have one
//! for as long as it does not reach a hub. It may not have what it was not assigned since it was born, or what was over
//! when it had something later. And what it begins to have may not have been over already when a hub answered it: a hub
//! knows what holds when the agent's connection begins, and hears soon of what changes.

use std::mem;

use super::belongs::version_in;
use super::story::{Assignment, PodStory, Read, Story};
use super::{Property, Report};
use crate::history::{How, Time};

/// By how much the record of etcd may be later than the reading of what it was about.
pub(super) const RECORD_DELAY_MILLIS: Time = 5000;
/// How long a hub may not have heard of a change, in addition to the time of faults.
const MAX_HUB_DELAY_MILLIS: Time = 60_000;

pub(super) fn check(story: &Story<'_>, report: &mut Report) {
    for pod in story.pods.iter().filter(|pod| !pod.reads.is_empty()) {
        for config in &pod.pod.configs {
            let assignments = pod.assigned(config);
            for files in [false, true] {
                match follow(story, pod, config, files) {
                    None => report.outcome(Property::Assigned, None),
                    Some(Wrong { property, since, at, what }) => {
                        let description = format!("{} {what}", pod.pod.name);
                        if story.missed(since, at + RECORD_DELAY_MILLIS) {
                            report.undecided(property, at, description);
                        } else {
                            let description =
                                format!("{description}; it was assigned {}", list_assignments(assignments, pod));
                            report.outcome(property, Some((at, description)));
                        }
                    }
                }
            }
        }
    }
}

/// A reading that has no place among the assignments since then.
struct Wrong {
    property: Property,
    since: Time,
    at: Time,
    what: String,
}

/// Follows the readings along the assignments.
fn follow(story: &Story<'_>, pod: &PodStory<'_>, config: &str, files: bool) -> Option<Wrong> {
    let assignments = pod.assigned(config);
    let (mut place, mut last, mut previous) = (0, None, pod.born);
    for read in pod.reads.iter().filter(|read| (read.how == How::Files) == files) {
        let (before, at) = (mem::replace(&mut previous, read.at), read.at);
        let Some(version) = version_in(read.values, config) else {
            // What was last good is served even where the config is gone.
            if let Some(last) = last {
                let description = format!("read {config} {last} and then nothing of it");
                return Some(Wrong { property: Property::Assigned, since: before, at, what: description });
            }
            continue;
        };
        // What it has already may be over for as long as it does not reach a hub.
        let since = if last == Some(version) { 0 } else { earliest_end(story, pod, before, read) };
        last = Some(version);
        let is_expected = |one: &Assignment<'_>| one.version == Some(version) && one.at <= at + RECORD_DELAY_MILLIS;
        let held = |index: usize| assignments.get(index + 1).is_none_or(|next| next.at >= since);
        let mut later =
            assignments.iter().enumerate().skip(place).filter(|(_, one)| is_expected(one)).map(|(index, _)| index);
        let (property, wrong) = match later.clone().find(|index| held(*index)) {
            Some(index) => {
                place = index;
                continue;
            }
            None if later.next().is_some() => (Property::Assigned, format!("which was over at {since}")),
            None if assignments.iter().any(is_expected) => {
                (Property::Order, "which was over before what it had".to_owned())
            }
            None => (Property::Assigned, "which it was not assigned".to_owned()),
        };
        return Some(Wrong { property, since, at, what: format!("read {config} {version}, {:?}, {wrong}", read.how) });
    }
    None
}

/// Returns when a version at the latest may have been over that is read now, and was not at the reading before. Files
/// come later than answers, so their connection is not known.
fn earliest_end(story: &Story<'_>, pod: &PodStory<'_>, before: Time, read: &Read<'_>) -> Time {
    let contacts_so_far = pod.contacts.iter().take_while(|contact| contact.at <= read.at);
    let Some(last) = contacts_so_far.clone().last().filter(|_| read.how != How::Files) else {
        return story.before(read.at, MAX_HUB_DELAY_MILLIS);
    };
    let mut from = before.saturating_sub(RECORD_DELAY_MILLIS);
    // What has arrived at an agent that stands still is served when it continues.
    for fault in story.faults.iter().filter(|fault| fault.name.starts_with("stop: agent")) {
        if fault.from <= read.at && fault.until >= from {
            from = from.min(fault.from);
        }
    }
    let began = contacts_so_far.filter(|contact| contact.at >= from).map(|contact| contact.since).min();
    began.unwrap_or(last.since).max(story.before(last.at, MAX_HUB_DELAY_MILLIS))
}

fn list_assignments(assignments: &[Assignment<'_>], pod: &PodStory<'_>) -> String {
    let one = |one: &Assignment<'_>| format!("{} at {}", one.version.unwrap_or("nothing"), one.at);
    let texts: Vec<String> = assignments.iter().map(one).collect();
    format!("{} (born at {})", texts.join(", "), pod.born)
}
