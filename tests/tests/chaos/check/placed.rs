//! Every application ends on the version that its pod is assigned.

use super::belongs::{MAX_READING_AGE_MILLIS, at_rest, version_for, version_in};
use super::story::Story;
use super::{Property, Report};
use crate::history::How;

pub(super) fn check(story: &Story<'_>, report: &mut Report) {
    for &at in &story.settled {
        for config in story.configs.keys() {
            let moving = story.stored(config, at).filter(|stored| !at_rest(stored)).map(|stored| {
                let status = &stored.status;
                let conditions =
                    status.conditions.iter().map(|condition| format!("{}: {}", condition.reason, condition.message));
                let messages: Vec<String> = conditions.collect();
                let (state, stage) = (status.state().as_str(), status.rollout.stage);
                (at, format!("{config} is {state} at {stage:?}: {}", messages.join("; ")))
            });
            report.outcome(Property::Placed, moving);
        }
        for pod in story.pods.iter().filter(|pod| pod.lives_at(at)) {
            for files in [false, true] {
                let name = &pod.pod.name;
                let last = pod
                    .last(at, |read| (read.how == How::Files) == files)
                    .filter(|read| read.at + MAX_READING_AGE_MILLIS >= at);
                let Some(last) = last else {
                    report.undecided(Property::Placed, at, format!("{name} has read nothing, files: {files}"));
                    continue;
                };
                let wrong = pod.pod.configs.iter().find_map(|config| {
                    let assigned = version_for(story.stored(config, at)?, pod.pod);
                    let read = version_in(last.values, config);
                    let what = || format!("{name} has {config} {read:?}, files: {files}, and is assigned {assigned:?}");
                    (read != assigned).then(what)
                });
                report.outcome(Property::Placed, wrong.map(|wrong| (at, wrong)));
            }
        }
    }
}
