//! What holds a rollout although all that are waited for have proven the target. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfigStatus;

use super::Subject;
use super::batch::{is_all, is_complete, is_told, size};
use super::proof::{SILENT, fallen, lost, skipped};
use super::step::{Situation, Step, held, waits};
use super::subject::ENDING;

/// Why no further batch may go out, and nothing be published.
pub(super) fn hold(status: &VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Option<Step> {
    if let Some(pod) = fallen(status, seen).first() {
        let message = format!(
            "pod {} was healthy when it was told version {target}, and its node is not Ready; no further pod is told until the pod is \
             Ready or gone",
            pod.name
        );
        return Some(waits("NodeNotReady", message, None));
    }
    too_many_skipped(status, seen, target).or_else(|| nobody_to_judge(status, seen, target))
}

/// Holds where no pod can say anything about the target: none of the config is healthy, or in the end none has taken it.
fn nobody_to_judge(status: &VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Option<Step> {
    let now = seen.now.0.as_second();
    let told = |pod: &&Subject| is_told(&status.rollout.groups, pod);
    let mut counted = seen.pods.iter().filter(|pod| !pod.ending);
    // Whoever was told nothing yet has nothing to say.
    counted.clone().find(told)?;
    let nobody = if is_complete(&status.rollout.groups, seen.pods) {
        // Of pods that can't be heard, and could not before either, nothing is expected.
        let lost = lost(status);
        let expected = |pod: &Subject| pod.unreachable().is_none() || lost.contains(pod.uid.as_str());
        counted.clone().all(|pod| !pod.has_taken(target)) && counted.any(expected)
    } else {
        !is_all(seen.spec.batch.as_ref()) && counted.all(|pod| pod.unfit(now).is_some())
    };
    nobody.then(|| {
        let message = format!(
            "no pod of the config is Ready and has been without a restart for ten minutes, so none can show whether version {target} is \
             good; it goes on by itself as soon as one is. Or mend a pod that was told it, go back (kubectl nudge rollback), or set \
             spec.rollout.batch to 100%, which tells all pods"
        );
        Step { again: settled(seen), ..held("NobodyToJudge", message) }
    })
}

/// When the next pod that restarted counts as well again by time alone.
fn settled(seen: &Situation<'_>) -> Option<Time> {
    let times = seen.pods.iter().filter_map(|pod| Timestamp::from_second(pod.settles()?).ok());
    times.filter(|time| *time > seen.now.0).min().map(Time)
}

/// Holds where of a workload more pods than a batch were well and could not be waited for, or where none has proven anything although
/// some were well.
fn too_many_skipped(status: &VersionedConfigStatus, seen: &Situation<'_>, target: &str) -> Option<Step> {
    let reasons = skipped(status);
    // Whose work is done holds nobody up.
    let reason = |pod: &Subject| reasons.get(pod.uid.as_str()).copied().filter(|reason| *reason != ENDING);
    let lost = lost(status);
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
        let told = pods.iter().filter(|pod| is_told(&status.rollout.groups, pod)).count();
        let silent = pods.iter().filter(|pod| reason(pod) == Some(SILENT)).count();
        (silent > 0 && told == skipped && told >= batch.min(pods.len()))
            .then(|| format!("no pod of {name} has taken version {target}, and {silent} of them were Ready before"))
    })?;
    Some(Step {
        again: settled(seen),
        ..held("TooManySkipped", message + "; see status.rollout.skipped, and mend them")
    })
}
