//! Whether what a pod reads only at its start is the version that pods should run.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use nudge_api::{PartKind, RolloutStage, VersionedConfig, VersionedConfigStatus};

use crate::injection::ReadPath;
use crate::pods::PodState;

/// The times since which new pods start with a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartTimes {
    /// The time since which the agent of every new pod has the version.
    assigned: Option<Timestamp>,
    /// The times since which published objects have the version.
    published: BTreeMap<PartKind, Timestamp>,
}

/// The state of what a pod read at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartState {
    /// The pod started with the version, or reads nothing of the config only at its start.
    Present,
    /// The pod started with other content. A new pod starts with the version.
    Older {
        /// The container that reads it, and how.
        container: String,
        /// How the container reads it.
        path: ReadPath,
    },
    /// The container reads an object that does not hold the version. A new pod does not have the version either.
    ObjectLacksVersion {
        /// The container that reads it.
        container: String,
        /// The kind of the object.
        kind: PartKind,
    },
}

impl StartTimes {
    /// Returns the times of this version by the status of its config.
    pub fn of(status: &VersionedConfigStatus, version: &str) -> Self {
        let since = |kind: PartKind| Some((kind, kind.publish_time(status)?.0));
        let rollout = &status.rollout;
        let is_restarting = rollout.stage == Some(RolloutStage::Restarting);
        Self {
            assigned: rollout.progress_time.as_ref().filter(|_| is_restarting).map(|time| time.0),
            published: published_kinds(status, version).into_iter().filter_map(since).collect(),
        }
    }

    /// Returns the state of what the pod read at its start of this config. `objects` are the kinds of objects that
    /// bring the version.
    pub fn state_of(&self, pod: &PodState, config: &str, objects: &[PartKind]) -> StartState {
        let mut older = None;
        for (container, path) in pod.reads.fixed_reads(config, |kind| objects.contains(&kind)) {
            let since = match path.object() {
                None => self.assigned,
                Some(kind) => match self.published.get(&kind) {
                    None => return StartState::ObjectLacksVersion { container: container.to_owned(), kind },
                    since => since.copied(),
                },
            };
            // Times have whole seconds: a pod of the same second may have the older content.
            if pod.created <= since.map(Timestamp::as_second).or(Some(i64::MAX)) {
                older.get_or_insert((container, path));
            }
        }
        older.map_or(StartState::Present, |(container, path)| StartState::Older {
            container: container.to_owned(),
            path,
        })
    }
}

/// Returns the state of what a pod read at its start, compared with the version that the rollout moves pods to. At rest
/// and on the way back every pod counts as one that started with its version: times say nothing about equal contents.
pub fn starts_with_target(
    config: &VersionedConfig,
    status: &VersionedConfigStatus,
) -> impl Fn(&PodState) -> StartState + use<> {
    let target = status.target_version.as_deref().filter(|_| status.rollout.is_forward());
    let start = target.map(|target| (StartTimes::of(status, target), objects_with_version(config, status, target)));
    let name = config.metadata.name.clone().unwrap_or_default();
    move |pod| match &start {
        Some((times, objects)) => times.state_of(pod, &name, objects),
        None => StartState::Present,
    }
}

/// Returns the kinds of objects of the config's name that bring this version: `spec.objects` has them, and the version
/// has parts of the kind.
pub fn objects_with_version(config: &VersionedConfig, status: &VersionedConfigStatus, version: &str) -> Vec<PartKind> {
    let parts = status.version(version).map(|version| version.parts.as_slice()).unwrap_or_default();
    let is_brought = |kind: &PartKind| config.spec.owns(*kind) && parts.iter().any(|part| part.kind == *kind);
    PartKind::ALL.into_iter().filter(is_brought).collect()
}

/// Returns the kinds of the published objects that have the version by this status.
pub fn published_kinds(status: &VersionedConfigStatus, version: &str) -> Vec<PartKind> {
    PartKind::ALL.into_iter().filter(|kind| kind.published_version(status) == Some(version)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pods::pod_state;

    /// A pod with an agent that keeps `shop` in place of volume `conf`, created at second 100.
    fn pod(containers: &Value, init: &Value) -> PodState {
        let kept =
            json!([{"volume": "conf", "folder": "/run/nudge/volumes/1", "sources": [{"config": "shop", "mode": 420}]}]);
        let agent = json!({"name": "nudge-agent", "restartPolicy": "Always", "env": [
            {"name": "NUDGE_CONFIGS", "value": "shop"}, {"name": "NUDGE_NOTIFY", "value": "app=SIGHUP"},
            {"name": "NUDGE_VOLUMES", "value": kept.to_string()}]});
        let init: Vec<Value> = [agent].into_iter().chain(init.as_array().unwrap().clone()).collect();
        let object = json!({"metadata": {"name": "web", "uid": "u", "creationTimestamp": "1970-01-01T00:01:40Z"},
            "spec": {"initContainers": init, "containers": containers}});
        pod_state(&serde_json::from_value(object).unwrap()).unwrap()
    }

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn variables_are_those_of_the_object_at_the_start() {
        let reader = pod(&json!([{"name": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]}]), &json!([]));
        let published = |config_map: Option<Timestamp>| {
            [(PartKind::ConfigMap, config_map), (PartKind::Secret, at(50))]
                .into_iter()
                .filter_map(|(kind, time)| Some((kind, time?)))
        };
        let state = |config_map, objects: &[PartKind]| {
            let times = StartTimes { published: published(config_map).collect(), assigned: at(50) };
            times.state_of(&reader, "shop", objects)
        };
        let container = || "app".to_owned();
        let (path, kind) = (ReadPath::Variables(PartKind::ConfigMap), PartKind::ConfigMap);
        assert_eq!(state(at(99), &[kind]), StartState::Present);
        for second in [100, 101] {
            assert_eq!(state(at(second), &[kind]), StartState::Older { container: container(), path });
        }
        assert_eq!(state(None, &[kind]), StartState::ObjectLacksVersion { container: container(), kind });
        assert_eq!(state(None, &[PartKind::Secret]), StartState::Present, "the ConfigMap is not the config's");
    }

    #[test]
    fn what_an_init_container_renders_is_the_version_that_the_agent_had() {
        let render = json!([{"name": "render", "volumeMounts": [{"name": "nudge-files-1", "mountPath": "/in"}]}]);
        let rendered = pod(&json!([{"name": "app"}]), &render);
        let state = |assigned| StartTimes { assigned, ..StartTimes::default() }.state_of(&rendered, "shop", &[]);
        assert_eq!(state(at(99)), StartState::Present);
        let older = StartState::Older { container: "render".to_owned(), path: ReadPath::KeptAtStart };
        assert_eq!([state(at(100)), state(None)], [older.clone(), older], "as long as not every new pod has it");
    }
}
