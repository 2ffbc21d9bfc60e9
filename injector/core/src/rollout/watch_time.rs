//! The time for which a step is watched: until the probes of its pods have noticed if they got worse.

use std::cmp::Ordering;

use nudge_api::Watch;

use super::Subject;
use crate::pods::SlowestProbe;

/// The maximum time for which a step is watched because of a probe, in seconds. The first step has no such limit.
const MAX_WATCH_SECONDS: u32 = 300;

/// Returns how long the step is watched that has these pods.
pub(super) fn watch_time<'a>(pods: impl Iterator<Item = &'a Subject>, first: bool, min_ready_seconds: u32) -> Watch {
    let (mut slowest, mut without): (Option<&SlowestProbe>, Option<&Subject>) = (None, None);
    for pod in pods {
        match &pod.slowest_probe {
            None => without = without.or(Some(pod)),
            Some(probe) => {
                // Most pods have the same probe, whose text is costly.
                let longer = |known: &SlowestProbe| match probe.seconds().cmp(&known.seconds()) {
                    Ordering::Equal => probe != known && probe.to_string() > known.to_string(),
                    order => order == Ordering::Greater,
                };
                if slowest.is_none_or(longer) {
                    slowest = Some(probe);
                }
            }
        }
    }
    let slowest = slowest.map(|probe| (probe.seconds(), probe.to_string()));
    let longest = if first { u32::MAX } else { MAX_WATCH_SECONDS.max(min_ready_seconds) };
    let weak = match &slowest {
        Some((seconds, probe)) if *seconds > longest => {
            Some(format!("{probe} to notice a change, which is {seconds} s"))
        }
        _ => without.map(|pod| format!("pod {} has no readiness or liveness probe", pod.name)),
    };
    match slowest {
        Some((seconds, probe)) if seconds > min_ready_seconds => {
            Watch { seconds: seconds.min(longest), reason: format!("{probe} to notice a change"), weak }
        }
        _ => Watch { seconds: min_ready_seconds, reason: "spec.rollout.minReadySeconds says so".to_owned(), weak },
    }
}
