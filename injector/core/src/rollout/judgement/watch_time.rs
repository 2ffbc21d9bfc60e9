//! The time that a step is watched: until the probes of its pods would have noticed that they got worse.

use std::cmp::Ordering;

use nudge_api::Watch;

use crate::pods::SlowestProbe;
use crate::rollout::{Confirmation, Subject};

/// The maximum time in seconds that a step is watched because of a probe. The first step has no such limit.
const MAX_WATCH_SECONDS: u32 = 300;

/// Returns the time that a step with these pods is watched, and the reason for it.
pub(in crate::rollout) fn step_watch<'a>(
    pods: impl Iterator<Item = &'a Subject>,
    is_first_step: bool,
    min_ready_seconds: u32,
) -> Watch {
    let mut slowest: Option<&SlowestProbe> = None;
    let mut unprobed: Option<&Subject> = None;
    let mut watching: Option<&Subject> = None;
    let mut is_notified = false;
    for pod in pods {
        match pod.confirmation {
            Confirmation::Notification => is_notified = true,
            Confirmation::SwappedFiles => watching = watching.or(Some(pod)),
            Confirmation::Unknown => {}
        }
        match &pod.probes.slowest {
            None => unprobed = unprobed.or(Some(pod)),
            Some(probe) => {
                // Most pods have the same probe, whose text is costly.
                let is_slower = |known: &SlowestProbe| match probe.seconds().cmp(&known.seconds()) {
                    Ordering::Equal => probe != known && probe.to_string() > known.to_string(),
                    order => order == Ordering::Greater,
                };
                if slowest.is_none_or(is_slower) {
                    slowest = Some(probe);
                }
            }
        }
    }
    let slowest = slowest.map(|probe| (probe.seconds(), probe.to_string()));
    let max_seconds = if is_first_step { u32::MAX } else { MAX_WATCH_SECONDS.max(min_ready_seconds) };
    let files = watching.filter(|_| !is_notified).map(|pod| {
        format!("pod {} watches its files, and nothing shows that it has read them; set nudge.dev/notify", pod.name)
    });
    let probes = match &slowest {
        Some((seconds, probe)) if *seconds > max_seconds => {
            Some(format!("{probe} to notice a change, which is {seconds} s"))
        }
        _ => unprobed.map(|pod| format!("pod {} has no readiness or liveness probe", pod.name)),
    };
    let weak = [probes, files].into_iter().flatten().reduce(|first, second| format!("{first}; {second}"));
    match slowest {
        Some((seconds, probe)) if seconds > min_ready_seconds => {
            Watch { seconds: seconds.min(max_seconds), reason: format!("{probe} to notice a change"), weak }
        }
        _ => Watch { seconds: min_ready_seconds, reason: "spec.rollout.minReadySeconds says so".to_owned(), weak },
    }
}
