//! What holds a rollout although all pods that are waited for have proven the target.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::Reason;

use super::batch::{is_all, is_assigned, is_complete, size};
use super::state::Move;
use super::waited_for::{fallen, lost, reasons};
use super::{Effects, Observation, Subject};

/// Why there may be no further batch, and nothing may be published.
pub(super) fn hold(moved: &Move, seen: &Observation<'_>, now: &Time) -> Option<Effects> {
    if let Some(pod) = fallen(moved, seen).first() {
        let message = format!(
            "pod {} was healthy when version {} was assigned to it, and its node is not Ready; the version is assigned to no further \
             pod until this one is Ready or gone",
            pod.name, moved.target
        );
        return Some(Effects::waits(Reason::NodeNotReady, message, None));
    }
    too_many_skipped(moved, seen, now).or_else(|| nobody_to_judge(moved, seen, now))
}

/// Holds where no pod can say anything about the target: none of the config is healthy, or in the end none has taken it.
fn nobody_to_judge(moved: &Move, seen: &Observation<'_>, now: &Time) -> Option<Effects> {
    let mut counted = seen.pods.iter().filter(|pod| !pod.ending);
    // A pod without the target has nothing to say about it.
    counted.clone().find(|pod| is_assigned(&moved.groups, pod))?;
    let nobody = if is_complete(&moved.groups, seen.pods) {
        // Nothing is expected of pods that are unreachable now and were when the target was assigned to them.
        let lost = lost(moved);
        let expected = |pod: &Subject| pod.unreachable().is_none() || lost.contains(pod.uid.as_str());
        counted.clone().all(|pod| !pod.has_taken(&moved.target)) && counted.any(expected)
    } else {
        !is_all(seen.spec.batch.as_ref()) && counted.all(|pod| pod.unfit(now.0.as_second()).is_some())
    };
    nobody.then(|| {
        let message = format!(
            "no pod of the config is Ready and has been without a restart for ten minutes, so none can show whether version {} is \
             good; the rollout continues as soon as one is. Or repair a pod that the version is assigned to, go back \
             (kubectl nudge rollback), or set spec.rollout.batch to 100%, which assigns the version to all pods",
            moved.target
        );
        Effects { look_again: settled(seen, now), ..Effects::held(Reason::NobodyToJudge, message) }
    })
}

/// When the next pod that restarted counts as well again by time alone.
fn settled(seen: &Observation<'_>, now: &Time) -> Option<Time> {
    let times = seen.pods.iter().filter_map(|pod| Timestamp::from_second(pod.settles()?).ok());
    times.filter(|time| *time > now.0).min().map(Time)
}

/// Holds where more pods of a workload than a batch were well and could not be waited for, or where none has proven anything although
/// some were well.
fn too_many_skipped(moved: &Move, seen: &Observation<'_>, now: &Time) -> Option<Effects> {
    let reasons = reasons(moved);
    // A pod whose work is done holds nothing up.
    let reason = |pod: &Subject| reasons.get(pod.uid.as_str()).copied().filter(|reason| *reason != Reason::Ending);
    let lost = lost(moved);
    let fell = |pod: &&&Subject| pod.was_ready && reason(pod).is_some() && lost.contains(pod.uid.as_str());
    let mut workloads: BTreeMap<&str, Vec<&Subject>> = BTreeMap::new();
    for pod in seen.pods {
        workloads.entry(&pod.workload).or_default().push(pod);
    }
    let message = workloads.iter().find_map(|(workload, pods)| {
        let name = if workload.is_empty() { "pods without a workload" } else { workload };
        let skipped = pods.iter().filter(|pod| reason(pod).is_some()).count();
        let batch = size(seen.spec.batch.as_ref(), pods.len());
        let fell = pods.iter().filter(fell).count();
        if fell > batch {
            return Some(format!(
                "{fell} pods of {name} were healthy and could not be waited for, which is more than a batch of {batch} \
                 (spec.rollout.batch)"
            ));
        }
        let assigned = pods.iter().filter(|pod| is_assigned(&moved.groups, pod)).count();
        let silent = pods.iter().filter(|pod| reason(pod) == Some(Reason::NotAcknowledged)).count();
        (silent > 0 && assigned == skipped && assigned >= batch.min(pods.len())).then(|| {
            format!("no pod of {name} has taken version {}, and {silent} of them were Ready before", moved.target)
        })
    })?;
    let message = message + "; status.rollout.skipped lists them: repair them";
    Some(Effects { look_again: settled(seen, now), ..Effects::held(Reason::TooManySkipped, message) })
}
