//! Because of what the pods of a template must be restarted. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::labels;
use serde_json::json;

use super::marks::{REFRESH, annotation, found};
use crate::injection;
use crate::pods::{by_restart, references};

/// What pods of a template have at their start and not anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// ConfigMaps that they read themselves: what is published there.
    pub plain: BTreeSet<String>,
    /// Configs that they have from an agent, Secrets included, and that their user wants to be taken by restarts.
    pub configs: BTreeSet<String>,
}

impl Uses {
    /// Whether the config is among them: of those that read the plain ConfigMap only where that `holds` the version.
    pub fn takes(&self, config: &str, holds: bool) -> bool {
        self.configs.contains(config) || (holds && self.plain.contains(config))
    }

    /// All names, each once.
    pub fn names(&self) -> BTreeSet<&String> {
        self.plain.union(&self.configs).collect()
    }
}

/// What pods of this template read only once, or whose user wants restarts. Nothing for pods that an agent tells of changes.
pub fn restarted_for(meta: &ObjectMeta, spec: &PodSpec) -> Uses {
    let injected =
        annotation(meta, labels::INJECT) == Some("true") || found(meta.labels.as_ref(), labels::INJECT) == Some("true");
    // Said so, for pods with and without an agent.
    let left_alone = annotation(meta, labels::CONFIG_RESTARTS) == Some("false") || (injected && !by_restart(meta));
    if left_alone {
        return Uses::default();
    }
    let plain = if annotation(meta, REFRESH) == Some("true") { read_once(spec) } else { config_maps(spec) };
    let configs = if injected { subscribed(meta, spec) } else { BTreeSet::new() };
    Uses { plain, configs }
}

/// The configs that injection gives the pods, as far as they are there. None where it refuses them, so that no pod can come.
fn subscribed(meta: &ObjectMeta, spec: &PodSpec) -> BTreeSet<String> {
    let pod = json!({"metadata": {"annotations": meta.annotations, "labels": meta.labels}, "spec": spec});
    let desired = injection::read(&pod).ok().flatten();
    desired.map(|desired| desired.configs()).into_iter().flatten().map(|name| name.to_string()).collect()
}

/// Whether the kubelet is to be made to read the ConfigMap's volumes of this pod again.
pub fn refreshed_for(meta: &ObjectMeta, spec: &PodSpec, config: &str) -> bool {
    let agent = found(meta.labels.as_ref(), labels::AGENT).is_some();
    let volumes = PodSpec { volumes: spec.volumes.clone(), ..PodSpec::default() };
    !agent && annotation(meta, REFRESH) == Some("true") && config_maps(&volumes).contains(config)
}

/// All that are named by variables and volumes.
fn config_maps(spec: &PodSpec) -> BTreeSet<String> {
    let named = references(spec).into_iter();
    named.filter(|(kind, _)| *kind == PartKind::ConfigMap).map(|(_, name)| name).collect()
}

/// Those that no refresh of volumes brings: variables, and files that are mounted by `subPath`.
fn read_once(spec: &PodSpec) -> BTreeSet<String> {
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let mounts = containers().flat_map(|container| container.volume_mounts.iter().flatten());
    let once: BTreeSet<&str> = mounts
        .filter(|mount| mount.sub_path.is_some() || mount.sub_path_expr.is_some())
        .map(|mount| mount.name.as_str())
        .collect();
    let mut rest = spec.clone();
    rest.volumes.iter_mut().for_each(|volumes| volumes.retain(|volume| once.contains(volume.name.as_str())));
    config_maps(&rest)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn names(meta: Value, spec: Value) -> Vec<String> {
        let (meta, spec) = (serde_json::from_value(meta).unwrap(), serde_json::from_value(spec).unwrap());
        let uses = restarted_for(&meta, &spec);
        assert!(uses.configs.is_empty(), "{uses:?}");
        uses.plain.into_iter().collect()
    }

    fn configs(annotations: &Value, spec: Value) -> Vec<String> {
        let mut meta: ObjectMeta = serde_json::from_value(json!({"annotations": annotations})).unwrap();
        let all = meta.annotations.get_or_insert_default();
        all.insert("nudge.dev/inject".to_owned(), "true".to_owned());
        all.insert("nudge.dev/config-restarts".to_owned(), "true".to_owned());
        restarted_for(&meta, &serde_json::from_value(spec).unwrap()).configs.into_iter().collect()
    }

    fn spec() -> Value {
        json!({
            "initContainers": [{"name": "init", "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "by-env", "key": "k"}}}]}],
            "containers": [{
                "name": "app", "envFrom": [{"configMapRef": {"name": "by-env-from"}}],
                "volumeMounts": [{"name": "part", "mountPath": "/p", "subPath": "k"}, {"name": "all", "mountPath": "/a"}],
            }],
            "volumes": [
                {"name": "all", "configMap": {"name": "by-volume"}},
                {"name": "part", "configMap": {"name": "by-sub-path"}},
                {"name": "some", "projected": {"sources": [{"configMap": {"name": "projected"}}, {"secret": {"name": "secret"}}]}},
            ],
        })
    }

    #[test]
    fn every_way_to_use_a_config_map_counts() {
        let all = ["by-env", "by-env-from", "by-sub-path", "by-volume", "projected"];
        assert_eq!(names(json!({}), spec()), all);
        let refreshed = json!({"annotations": {"nudge.dev/refresh": "true"}});
        assert_eq!(names(refreshed, spec()), ["by-env", "by-env-from", "by-sub-path"]);
    }

    #[test]
    fn with_an_agent_only_those_who_ask_for_it() {
        for meta in [
            json!({"labels": {"nudge.dev/inject": "true"}}),
            json!({"annotations": {"nudge.dev/inject": "true", "nudge.dev/config-restarts": "false"}}),
            json!({"annotations": {"nudge.dev/config-restarts": "false"}}),
        ] {
            assert!(names(meta, spec()).is_empty());
        }
        let listed = json!({"nudge.dev/configs": "one, two"});
        assert_eq!(configs(&listed, json!({"containers": [{"name": "app"}]})), ["one", "two"]);
        assert_eq!(configs(&listed, spec()), ["one", "two"], "the annotation says what the agent has");
        // As injection finds them: what the chosen containers name.
        assert_eq!(configs(&json!({}), spec()), ["by-env", "by-env-from", "by-sub-path", "by-volume"]);
        assert_eq!(configs(&json!({"nudge.dev/containers": "init"}), spec()), ["by-env"]);
        assert!(configs(&json!({"nudge.dev/notify": "SIGUSR1"}), spec()).is_empty(), "such a pod is refused");
    }

    #[test]
    fn only_volumes_of_pods_that_ask_are_refreshed() {
        let asks: ObjectMeta = serde_json::from_value(json!({"annotations": {"nudge.dev/refresh": "true"}})).unwrap();
        let spec: PodSpec = serde_json::from_value(spec()).unwrap();
        assert!(refreshed_for(&asks, &spec, "by-volume") && refreshed_for(&asks, &spec, "projected"));
        assert!(!refreshed_for(&asks, &spec, "by-env") && !refreshed_for(&ObjectMeta::default(), &spec, "by-volume"));
    }
}
