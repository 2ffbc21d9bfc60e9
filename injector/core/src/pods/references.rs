//! The ConfigMaps and Secrets that a pod names, and those that its containers read themselves.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodSpec;
use nudge_api::PartKind;
use nudge_protocol::pod::AGENT_CONTAINER;

use super::pod_state::PodState;
use crate::injection::{NamedObject, container_objects, variable_objects, volume_objects};

/// The objects that pods and templates of workloads name, and for each of them one that names it, such as
/// `Deployment web`.
pub type ObjectReferrers = BTreeMap<(PartKind, String), String>;

/// ConfigMaps and Secrets, by kind and name.
type References = BTreeSet<(PartKind, String)>;

/// Returns the kinds of the objects of this name that these pods, which get the config of the name, read. A pod that
/// names the config by an annotation alone stands for the ConfigMap.
pub fn read_kinds<'a>(name: &str, pods: impl Iterator<Item = &'a PodState>) -> BTreeSet<PartKind> {
    let mut kinds = BTreeSet::new();
    for pod in pods {
        let reads = |kind: &PartKind| pod.references.contains(&(*kind, name.to_owned()));
        let read: Vec<PartKind> = PartKind::ALL.into_iter().filter(reads).collect();
        kinds.extend(if read.is_empty() { vec![PartKind::ConfigMap] } else { read });
    }
    kinds
}

/// Returns the ConfigMaps and Secrets that a pod's specification names, in volumes and variables.
pub fn references(spec: &PodSpec) -> References {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let volumes = spec.volumes.iter().flatten();
    volumes.flat_map(volume_objects).chain(containers.flat_map(variable_objects)).map(NamedObject::id).collect()
}

/// Returns the ConfigMaps and Secrets that the pod's containers read themselves, in variables and in volumes that they
/// mount. The agent does not count, and neither does a volume whose mounts were moved.
pub fn direct_references(spec: &PodSpec) -> References {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let containers = containers.filter(|container| container.name != AGENT_CONTAINER);
    containers.flat_map(|container| container_objects(spec, container)).map(NamedObject::id).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_whose_mounts_were_moved_is_not_read_directly() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [{"name": AGENT_CONTAINER, "envFrom": [{"configMapRef": {"name": "agent"}}],
                "volumeMounts": [{"name": "moved", "mountPath": "/m"}]}],
            "containers": [{"name": "app", "volumeMounts": [{"name": "kept", "mountPath": "/k"}],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}}]}],
            "volumes": [{"name": "moved", "configMap": {"name": "moved"}},
                {"name": "kept", "projected": {"sources": [{"configMap": {"name": "kept"}}]}}],
        }))
        .unwrap();
        let names = |references: References| references.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(direct_references(&spec)), ["kept", "key"]);
        assert_eq!(names(references(&spec)), ["agent", "kept", "moved", "key"]);
    }

    #[test]
    fn pods_say_which_objects_of_a_name_they_read() {
        let pod = |references: &[(PartKind, &str)]| PodState {
            references: references.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect(),
            ..PodState::default()
        };
        let kinds = |pods: &[PodState]| read_kinds("web", pods.iter()).into_iter().collect::<Vec<_>>();
        let (map, secret) = ((PartKind::ConfigMap, "web"), (PartKind::Secret, "web"));
        assert_eq!(kinds(&[]), []);
        assert_eq!(kinds(&[pod(&[(PartKind::Secret, "other")])]), [PartKind::ConfigMap], "an annotation names it");
        assert_eq!(kinds(&[pod(&[secret])]), [PartKind::Secret]);
        assert_eq!(kinds(&[pod(&[secret]), pod(&[map])]), [PartKind::ConfigMap, PartKind::Secret]);
    }
}
