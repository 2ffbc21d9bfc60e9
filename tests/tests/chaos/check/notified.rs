//! Every application was notified after its last change, and of nothing twice.

use super::story::{PodStory, Read, Story};
use super::{Property, Report};
use crate::history::{How, Time};

/// The time within which two changes may be read at both signals: the second comes as soon as the first is dealt with.
const MERGE_WINDOW_MILLIS: Time = 5000;
/// The maximum time from an assignment until its notification.
const MAX_DELIVERY_MILLIS: Time = 60_000;

pub(super) fn check(story: &Story<'_>, report: &mut Report) {
    for pod in &story.pods {
        for &at in story.settled.iter().filter(|at| pod.lives_at(**at)) {
            after_the_last_change(pod, at, report);
        }
        let notices: Vec<&Read<'_>> = pod.reads.iter().filter(|read| read.how == How::Notified).collect();
        for pair in notices.windows(2) {
            report
                .outcome(Property::Once, needless_repeat(story, pod, pair[0], pair[1]).map(|what| (pair[1].at, what)));
        }
    }
}

/// Checks that an application has the version that it took last, at its start or by a signal.
fn after_the_last_change(pod: &PodStory<'_>, at: Time, report: &mut Report) {
    let name = &pod.pod.name;
    let Some(has) = pod.last(at, |read| read.how != How::Files) else {
        report.undecided(Property::Notified, at, format!("{name} has read nothing"));
        return;
    };
    let elapsed = pod.last(at, |read| read.life == has.life && [How::Started, How::Notified].contains(&read.how));
    let wrong = match elapsed {
        Some(elapsed) if elapsed.values == has.values => None,
        Some(elapsed) => {
            let when = format!("it was notified, or began, at {} with {}", elapsed.at, versions(&elapsed));
            Some((at, format!("{name} has {} and was not notified: {when}", versions(&has))))
        }
        None => Some((at, format!("{name} has {} and never began", versions(&has)))),
    };
    report.outcome(Property::Notified, wrong);
}

/// Returns whether a notification says nothing that the one before has not said.
fn needless_repeat(story: &Story<'_>, pod: &PodStory<'_>, first: &Read<'_>, second: &Read<'_>) -> Option<String> {
    let killed =
        pod.agent_killed.iter().any(|at| (first.at.saturating_sub(MERGE_WINDOW_MILLIS)..=second.at).contains(at));
    if first.life != second.life || first.values != second.values || killed {
        return None;
    }
    let assigned = |from: Time| {
        let changes = pod.pod.configs.iter().flat_map(|config| pod.assigned(config));
        changes.filter(|change| change.at > pod.born && (from..=second.at).contains(&change.at)).count()
    };
    let soon = second.at - first.at < MERGE_WINDOW_MILLIS;
    // If there was one change, nothing can have come together.
    if soon && assigned(first.at.saturating_sub(MAX_DELIVERY_MILLIS)) > 1 {
        return None;
    }
    // It was something else in between.
    if !soon && assigned(first.at) > 0 {
        return None;
    }
    // One of them stood still, and all signals of that time come as one, or late.
    let stopped = story.faults.iter().any(|fault| {
        fault.name.starts_with("stop")
            && fault.from <= second.at
            && fault.until.saturating_add(MERGE_WINDOW_MILLIS) >= first.at
    });
    if stopped && !soon {
        return None;
    }
    Some(format!("{} was notified of {} at {} and again", pod.pod.name, versions(first), first.at))
}

fn versions(read: &Read<'_>) -> String {
    read.values.get("nudge.configs").cloned().unwrap_or_default()
}
