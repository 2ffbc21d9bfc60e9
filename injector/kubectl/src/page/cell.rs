//! The cells of the page, one for each pod.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use nudge_api::{RolloutSpec, VersionedConfig, VersionedConfigStatus};
use nudge_core::identity::Identity;
use nudge_core::keys::PodUid;
use nudge_core::pods::PodState;
use nudge_core::rollout::{Subject, assigned_version, planned_steps};
use serde::Serialize;

use crate::output::rollout_report::TargetCount;
use crate::output::status::explain_difference;

/// The maximum number of pods of a config that a window shows.
const MAX_CELLS: usize = 20_000;

/// The state of a pod. If several apply, the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CellState {
    /// The pod runs its assigned version, which is not the target of a rollout.
    Waiting,
    /// The pod runs the target, or the current version if nothing moves.
    Running,
    /// The pod does not run its assigned version yet.
    Assigned,
    /// The pod is not Ready.
    Unhealthy,
    /// The pod reported that the version failed, or is the first that the rollout saw harmed.
    Harmed,
}

/// A pod as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cell {
    pub(crate) pod: String,
    /// Empty for a pod without a workload.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) workload: String,
    /// The step that will move the pod, as far as can be foreseen; absent if nothing moves, and for pods that no step
    /// moves.
    pub(crate) step: Option<usize>,
    pub(crate) state: CellState,
    pub(crate) assigned: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) message: Option<String>,
}

/// The pods of a config.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// Sorted by workload and name.
    pub(crate) shown: Vec<Cell>,
    /// The count of all pods, shown or not.
    pub(crate) count: TargetCount,
}

/// The plan of steps. It is made again only when pods or steps have changed.
#[derive(Debug, Default)]
pub(crate) struct StepCache {
    made_for: Option<(RolloutSpec, String)>,
    steps: HashMap<PodUid, usize>,
}

impl StepCache {
    fn update(&mut self, config: &VersionedConfig, name: &str, identity: Identity, pods: &[&PodState]) {
        let target = config.status.as_ref().and_then(|status| status.target_version.clone());
        let made_for = target.map(|target| (config.spec.rollout.clone(), target));
        let movable: Vec<&&PodState> = pods.iter().filter(|pod| !pod.is_by_restart()).collect();
        let is_same = movable.len() == self.steps.len() && movable.iter().all(|pod| self.steps.contains_key(&pod.uid));
        if self.made_for == made_for && (is_same || made_for.is_none()) {
            return;
        }
        self.steps.clear();
        if made_for.is_some() {
            let subject = |pod: &&&PodState| Subject::of(Arc::new(PodState::clone(pod)), name, identity, true);
            let subjects: Vec<Subject> = movable.iter().filter_map(subject).collect();
            for step in planned_steps(&config.spec.rollout, &subjects, Timestamp::now().as_second()) {
                self.steps.extend(step.pods.into_iter().map(|index| (subjects[index].uid.clone(), step.number)));
            }
        }
        self.made_for = made_for;
    }
}

fn state(
    status: &VersionedConfigStatus,
    pod: &PodState,
    config: &str,
    assigned: Option<&str>,
    runs: bool,
) -> CellState {
    let first = status.rollout.evidence.as_ref().and_then(|evidence| evidence.first.as_ref());
    let has_target = status.target_version.is_some() && assigned == status.target_version.as_deref();
    if pod.failure(config).is_some() || has_target && first.is_some_and(|first| first.name == pod.name) {
        CellState::Harmed
    } else if !pod.is_ready() {
        CellState::Unhealthy
    } else if !runs {
        CellState::Assigned
    } else if status.target_version.is_some() && !has_target {
        CellState::Waiting
    } else {
        CellState::Running
    }
}

/// Returns the cells of the config's pods. `pods` may include the pods of other configs.
pub(crate) fn cells<'a>(
    config: &VersionedConfig,
    pods: impl Iterator<Item = &'a PodState>,
    plan: &mut StepCache,
) -> Cells {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let namespace = config.metadata.namespace.as_deref().unwrap_or_default();
    let (none, identity) = (VersionedConfigStatus::default(), Identity::of(config));
    let status = config.status.as_ref().unwrap_or(&none);
    let has_config = |pod: &&PodState| {
        pod.is_live() && pod.namespace == namespace && pod.configs.iter().any(|config| config.as_str() == name)
    };
    let mut pods: Vec<&PodState> = pods.filter(has_config).collect();
    pods.sort_unstable_by_key(|pod| (&pod.workload, &pod.name));
    plan.update(config, name, identity, &pods);
    let mut cells = Cells::default();
    for (index, pod) in pods.into_iter().enumerate() {
        let assigned = assigned_version(status, identity, pod);
        cells.count.add(status, assigned);
        if index >= MAX_CELLS {
            continue;
        }
        let version = pod.runs(name).map(nudge_protocol::VersionName::as_str);
        let message = explain_difference(pod, name, assigned, version);
        cells.shown.push(Cell {
            pod: pod.name.clone(),
            workload: pod.workload_name().to_owned(),
            step: plan.steps.get(&pod.uid).copied(),
            state: state(status, pod, name, assigned, message.is_none()),
            assigned: assigned.map(str::to_owned),
            version: version.map(str::to_owned),
            message,
        });
    }
    cells
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodCondition;
    use nudge_core::pods::{Readiness, Removal, Report, UpdateMode};
    use nudge_protocol::ConfigName;
    use serde_json::{Value, json};

    use super::CellState::{Assigned, Harmed, Running, Unhealthy, Waiting};
    use super::*;

    fn config(status: &Value) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "team", "uid": "c"},
            "spec": {"version": "2", "rollout": {"steps": [{"pods": 1}, {"pods": "50%"}]}}, "status": status,
        }))
        .unwrap()
    }

    fn pod(name: &str, ready: bool, status: &str, reason: &str, message: &str) -> PodState {
        let condition = PodCondition {
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..PodCondition::default()
        };
        PodState {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: PodUid::new(name).unwrap(),
            workload: Some("Deployment/web".into()),
            configs: vec![ConfigName::new("shop").unwrap()],
            readiness: if ready { Readiness::Ready } else { Readiness::Never },
            report: Report::read(&condition),
            ..PodState::default()
        }
    }

    fn states(status: &Value, pods: &[PodState]) -> Vec<(String, CellState, Option<usize>)> {
        let cells = cells(&config(status), pods.iter(), &mut StepCache::default());
        cells.shown.into_iter().map(|cell| (cell.pod, cell.state, cell.step)).collect()
    }

    #[test]
    fn the_worst_is_shown() {
        let pods = [
            pod("a", true, "True", "Applied", "shop=2"),
            pod("b", true, "True", "Applied", "shop=1"),
            pod("c", false, "True", "Applied", "shop=2"),
            pod("d", false, "False", "NoHandler", "shop=1; no handler"),
        ];
        let all = json!({"currentVersion": "1", "targetVersion": "2", "internal": {"threshold": 1_u64 << 32}});
        let state_list = |status: &Value| states(status, &pods).into_iter().map(|cell| cell.1).collect::<Vec<_>>();
        assert_eq!(state_list(&all), [Running, Assigned, Unhealthy, Harmed]);
        let first = json!({"currentVersion": "1", "targetVersion": "2", "internal": {"threshold": 1_u64 << 32},
            "rollout": {"evidence": {"first": {"name": "a", "reason": "PodNotReady"}}}});
        assert_eq!(state_list(&first)[0], Harmed);
        let none = json!({"currentVersion": "1", "targetVersion": "2", "internal": {"threshold": 0}});
        assert_eq!(state_list(&none)[..2], [Assigned, Waiting]);
        assert_eq!(state_list(&json!({"currentVersion": "2"}))[..2], [Running, Assigned]);
    }

    #[test]
    fn steps_are_planned_only_while_something_moves() {
        let pods: Vec<PodState> = ["a", "b", "c", "d"].map(|name| pod(name, true, "True", "Applied", "shop=1")).into();
        let moving = states(&json!({"currentVersion": "1", "targetVersion": "2"}), &pods);
        let mut steps: Vec<_> = moving.iter().map(|cell| cell.2.unwrap()).collect();
        steps.sort_unstable();
        assert_eq!(steps, [1, 2, 3, 3]);
        assert!(states(&json!({"currentVersion": "1"}), &pods).iter().all(|cell| cell.2.is_none()));
    }

    #[test]
    fn the_plan_follows_the_pods() {
        let config = config(&json!({"currentVersion": "1", "targetVersion": "2"}));
        let mut pods: Vec<PodState> = ["a", "b"].map(|name| pod(name, true, "True", "Applied", "shop=1")).into();
        let mut plan = StepCache::default();
        cells(&config, pods.iter(), &mut plan);
        pods.push(PodState { update_mode: UpdateMode::ByRestart, ..pod("c", true, "True", "Applied", "shop=1") });
        pods.push(pod("d", true, "True", "Applied", "shop=1"));
        let shown = cells(&config, pods.iter(), &mut plan).shown;
        assert_eq!(shown.iter().map(|cell| cell.step.is_some()).collect::<Vec<_>>(), [true, true, false, true]);
    }

    #[test]
    fn other_pods_are_left_out_and_too_many_are_counted_alone() {
        let mut pods: Vec<PodState> =
            (0..=MAX_CELLS).map(|at| pod(&format!("p{at:05}"), true, "True", "Applied", "shop=1")).collect();
        pods.push(PodState { namespace: "other".to_owned(), ..pod("x", true, "True", "Applied", "shop=1") });
        pods.push(PodState { removal: Removal::Terminating, ..pod("y", true, "True", "Applied", "shop=1") });
        let cells = cells(&config(&json!({"currentVersion": "1"})), pods.iter(), &mut StepCache::default());
        assert_eq!((cells.count.total, cells.shown.len()), (MAX_CELLS + 1, MAX_CELLS));
    }
}
