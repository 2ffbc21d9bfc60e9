//! The number of pods that run the version that the config moves to.

use std::collections::BTreeSet;

use nudge_api::{MAX_LEFT_ALONE, PodCounts, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::VersionName;
use nudge_protocol::bounded_text::clip;

use crate::injection::Uptake;
use crate::pods::PodState;
use crate::restart::{StartState, starts_with_target};
use crate::rollout::{Subjects, Thresholds, version_to_publish};

/// The maximum length of the name of a container that is left alone, in bytes.
const MAX_LEFT_ALONE_BYTES: usize = 256;

pub(super) fn pod_counts(config: &VersionedConfig, status: &VersionedConfigStatus, pods: &Subjects) -> PodCounts {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let thresholds = status.target_version.as_deref().map(|target| (target, Thresholds::from_status(&status.internal)));
    let current = status.current_version.as_deref();
    let published = version_to_publish(status);
    let goal = final_version(status);
    let mut counts = PodCounts::default();
    let mut count = |assigned: Option<&str>, running: Option<&str>, ready: bool, failed: bool| {
        counts.total += 1;
        counts.on_target += u32::from(goal.is_some() && running == goal);
        counts.ready += u32::from(ready && assigned.is_some() && running == assigned);
        counts.failed += u32::from(failed);
    };
    let start_of = starts_with_target(config, status);
    for pod in pods.by_steps() {
        let target = thresholds.as_ref().filter(|(_, thresholds)| thresholds.is_assigned(pod));
        let assigned = target.map(|(target, _)| *target).or(current);
        let runs = pod.runs.as_deref().filter(|runs| Some(*runs) != goal || start_of(pod) == StartState::Present);
        count(assigned, runs, pod.is_ready(), pod.failure.is_some());
    }
    for pod in pods.by_restart() {
        count(published, pod.runs(name).map(VersionName::as_str), pod.is_ready(), pod.failure(name).is_some());
    }
    counts.summary = format!("{}/{}", counts.on_target, counts.total);
    counts.left_alone = left_alone(name, pods.by_steps().iter().map(|pod| &*pod.pod).chain(pods.by_restart()));
    counts
}

/// Returns the names of containers that are left alone: nothing is claimed about the version that they run.
fn left_alone<'a>(config: &str, pods: impl Iterator<Item = &'a PodState>) -> Vec<String> {
    let mut names = BTreeSet::new();
    for pod in pods {
        let uptakes = pod.reads.uptakes_of(config, |_| true);
        for container in uptakes.filter(|uptake| uptake.uptake == Uptake::Itself) {
            let owner = pod.workload.as_ref().map_or_else(|| format!("Pod/{}", pod.name), |id| id.as_str().to_owned());
            names.insert(clip(format!("{owner}: {}", container.container), MAX_LEFT_ALONE_BYTES));
            if names.len() > MAX_LEFT_ALONE {
                names.pop_last();
            }
        }
    }
    names.into_iter().collect()
}

/// Returns the version that pods should run in the end: the target, or the current version if nothing moves or pods
/// leave the target.
fn final_version(status: &VersionedConfigStatus) -> Option<&str> {
    let target = status.target_version.as_deref().filter(|_| !status.rollout.is_return());
    target.or(status.current_version.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pods::pod_state;

    fn pod(name: &str, annotations: &Value) -> PodState {
        let share = json!([{"name": "nudge-share", "mountPath": "/run/nudge"}]);
        let containers = json!([
            {"name": "nudge-agent", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]},
            {"name": "app", "volumeMounts": share}, {"name": "log", "volumeMounts": share}]);
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "s", "controller": true});
        let object = json!({"metadata": {"name": format!("{name}-0"), "uid": name, "annotations": annotations,
            "ownerReferences": [owner]}, "spec": {"containers": containers}});
        pod_state(&serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn containers_that_are_left_alone_are_named_each_once_and_not_too_many() {
        let pods = [pod("web", &json!({"nudge.dev/notify.log": "none"})), pod("api", &json!({}))];
        assert_eq!(left_alone("shop", pods.iter().chain(&pods)), ["StatefulSet/web: log"]);
        assert_eq!(left_alone("other", pods.iter()), Vec::<String>::new());
        let many: Vec<_> = (0..20).map(|at| pod(&format!("w{at:02}"), &json!({"nudge.dev/notify": "none"}))).collect();
        let names = left_alone("shop", many.iter());
        assert_eq!((names.len(), names[0].as_str()), (MAX_LEFT_ALONE, "StatefulSet/w00: app"));
    }
}
