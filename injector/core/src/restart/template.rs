//! The configs for which the pods of a template must be restarted.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::pod::AGENT_CONTAINER;
use nudge_protocol::{Notify, labels};
use serde_json::json;

use super::holds::Holds;
use super::marks::{REFRESH, annotation, found};
use crate::injection;
use crate::injection::annotations::VARIABLES;
use crate::pods::{by_restart, references};

/// How containers are notified; with a dot and a name, that container.
const NOTIFY: &str = "nudge.dev/notify";

/// The configs that pods of a template take only at their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Published ConfigMaps that they read themselves.
    pub published: BTreeSet<String>,
    /// Published Secrets that they read themselves.
    pub secrets: BTreeSet<String>,
    /// Configs that they get from an agent, Secrets included, and take by restarts because their annotation says so.
    pub configs: BTreeSet<String>,
}

impl Uses {
    /// Whether they take the config by a restart. Pods that read a published object do so only when it `holds` the version.
    pub fn takes(&self, config: &str, holds: Holds) -> bool {
        let reads =
            (holds.config_map && self.published.contains(config)) || (holds.secret && self.secrets.contains(config));
        self.configs.contains(config) || reads
    }

    /// All names, each once.
    pub fn names(&self) -> BTreeSet<&String> {
        self.published.iter().chain(&self.secrets).chain(&self.configs).collect()
    }

    /// What these pods read themselves.
    fn of(spec: &PodSpec) -> Self {
        let named =
            |kind| references(spec).into_iter().filter(move |(of, _)| *of == kind).map(|(_, name)| name).collect();
        Self { published: named(PartKind::ConfigMap), secrets: named(PartKind::Secret), configs: BTreeSet::new() }
    }
}

/// The configs that pods of this template take by a restart. Of pods whose agent notifies them of changes: those that only variables bring.
pub fn restarted_for(meta: &ObjectMeta, spec: &PodSpec) -> Uses {
    // The annotation holds for pods with and without an agent.
    if annotation(meta, labels::CONFIG_RESTARTS) == Some("false") {
        return Uses::default();
    }
    let injected = injection::opts_in(meta);
    if injected && !by_restart(meta) {
        return Uses::of(&unnotified(meta, spec));
    }
    let reads = if annotation(meta, REFRESH) == Some("true") { Uses::of(&read_once(spec)) } else { Uses::of(spec) };
    let configs = if injected { subscribed(meta, spec) } else { BTreeSet::new() };
    Uses { configs, ..reads }
}

/// The configs that injection gives the pods. None where it refuses the pods, because then there are none.
fn subscribed(meta: &ObjectMeta, spec: &PodSpec) -> BTreeSet<String> {
    let pod = json!({"metadata": {"annotations": meta.annotations, "labels": meta.labels}, "spec": spec});
    let request = injection::read(&pod).ok().flatten();
    request.map(|request| request.configs()).into_iter().flatten().map(|name| name.to_string()).collect()
}

/// Whether the kubelet must refresh this pod's volumes of the published objects at once.
pub fn refreshed_for(meta: &ObjectMeta, spec: &PodSpec, config: &str, holds: Holds) -> bool {
    let agent = found(meta.labels.as_ref(), labels::AGENT).is_some();
    let volumes = PodSpec { volumes: spec.volumes.clone(), ..PodSpec::default() };
    !agent && annotation(meta, REFRESH) == Some("true") && Uses::of(&volumes).takes(config, holds)
}

/// Whether a pod takes any config by a restart, or is refreshed for one.
pub fn is_restarted_or_refreshed(meta: &ObjectMeta, spec: &PodSpec) -> bool {
    annotation(meta, REFRESH) == Some("true") || !restarted_for(meta, spec).names().is_empty()
}

/// The containers that no agent notifies, and nothing else. Init containers that end have done their work.
fn unnotified(meta: &ObjectMeta, spec: &PodSpec) -> PodSpec {
    let notify = |container: &Container| {
        let of = |base: &str| annotation(meta, &format!("{base}.{}", container.name));
        // What gets variables from a config is restarted in place.
        let own = of(NOTIFY).or_else(|| of(VARIABLES).map(|_| Notify::Restart.as_str()));
        let own = own.or_else(|| annotation(meta, NOTIFY));
        own.unwrap_or(Notify::None.as_str()).to_owned()
    };
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let all = spec.containers.iter().chain(sidecars).filter(|container| container.name != AGENT_CONTAINER);
    let left = all.filter(|container| notify(container) == Notify::None.as_str());
    PodSpec { containers: left.cloned().collect(), ..PodSpec::default() }
}

/// The pods without what a refresh of volumes updates: with variables, and files that are mounted by `subPath`.
fn read_once(spec: &PodSpec) -> PodSpec {
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let mounts = containers().flat_map(|container| container.volume_mounts.iter().flatten());
    let once: BTreeSet<&str> = mounts
        .filter(|mount| mount.sub_path.is_some() || mount.sub_path_expr.is_some())
        .map(|mount| mount.name.as_str())
        .collect();
    let mut rest = spec.clone();
    rest.volumes.iter_mut().for_each(|volumes| volumes.retain(|volume| once.contains(volume.name.as_str())));
    rest
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn names(meta: Value, spec: Value) -> Vec<String> {
        let (meta, spec) = (serde_json::from_value(meta).unwrap(), serde_json::from_value(spec).unwrap());
        let uses = restarted_for(&meta, &spec);
        assert!(uses.configs.is_empty(), "{uses:?}");
        uses.published.into_iter().collect()
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
    fn every_way_to_use_a_secret_counts_where_one_is_published() {
        let spec = json!({
            "containers": [{"name": "app", "envFrom": [{"secretRef": {"name": "by-env-from"}}], "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "by-env", "key": "k"}}}]}],
            "volumes": [{"name": "all", "secret": {"secretName": "by-volume"}}],
            "imagePullSecrets": [{"name": "pull"}],
        });
        let uses = |meta: Value| {
            restarted_for(&serde_json::from_value(meta).unwrap(), &serde_json::from_value(spec.clone()).unwrap())
        };
        let all = uses(json!({}));
        assert_eq!(all.secrets.iter().collect::<Vec<_>>(), ["by-env", "by-env-from", "by-volume"], "a pull reads anew");
        assert!(all.published.is_empty());
        let refreshed = uses(json!({"annotations": {"nudge.dev/refresh": "true"}}));
        assert_eq!(refreshed.secrets.iter().collect::<Vec<_>>(), ["by-env", "by-env-from"]);
        let holds = |config_map, secret| Holds { config_map, secret };
        assert!(all.takes("by-env", holds(false, true)) && !all.takes("by-env", holds(true, false)));
    }

    #[test]
    fn the_annotation_decides_as_it_does_for_injection() {
        let opted_out = json!({"labels": {"nudge.dev/inject": "true"}, "annotations": {"nudge.dev/inject": "false"}});
        assert!(!names(opted_out, spec()).is_empty(), "without an agent these pods need a restart");
        let opted_in = json!({"labels": {"nudge.dev/inject": "false"}, "annotations": {"nudge.dev/inject": "true"}});
        assert_eq!(names(opted_in, spec()), ["by-env-from"], "the agent brings what volumes have");
    }

    #[test]
    fn with_an_agent_what_only_variables_bring() {
        let mut spec = spec();
        let reads = |name: &str| json!({"name": name, "envFrom": [{"configMapRef": {"name": format!("of-{name}")}}]});
        spec["containers"] = json!([reads("app"), reads("web"), reads("nudge-agent")]);
        let mut proxy = reads("proxy");
        proxy["restartPolicy"] = "Always".into();
        spec["initContainers"].as_array_mut().unwrap().push(proxy);
        let of = |annotations: Value| {
            let meta = json!({"labels": {"nudge.dev/inject": "true"}, "annotations": annotations});
            names(meta, spec.clone())
        };
        assert_eq!(of(json!({})), ["of-app", "of-proxy", "of-web"]);
        assert_eq!(of(json!({"nudge.dev/notify": "SIGHUP"})), Vec::<String>::new());
        let some = json!({"nudge.dev/notify": "webhook", "nudge.dev/notify.web": "none"});
        assert_eq!(of(some), ["of-web"]);
        assert_eq!(of(json!({"nudge.dev/notify.app": "SIGUSR1"})), ["of-proxy", "of-web"]);
        assert!(of(json!({"nudge.dev/config-restarts": "false"})).is_empty());
    }

    #[test]
    fn with_an_agent_only_pods_that_ask_for_restarts() {
        for meta in [
            json!({"labels": {"nudge.dev/inject": "true"}, "annotations": {"nudge.dev/notify": "SIGHUP"}}),
            json!({"annotations": {"nudge.dev/inject": "true", "nudge.dev/config-restarts": "false"}}),
            json!({"annotations": {"nudge.dev/config-restarts": "false"}}),
        ] {
            assert!(names(meta, spec()).is_empty());
        }
        let listed = json!({"nudge.dev/configs": "one, two"});
        assert_eq!(configs(&listed, json!({"containers": [{"name": "app"}]})), ["one", "two"]);
        assert_eq!(configs(&listed, spec()), ["one", "two"], "the annotation says what the agent has");
        // As injection finds them: what the named containers reference.
        assert_eq!(configs(&json!({}), spec()), ["by-env", "by-env-from", "by-sub-path", "by-volume"]);
        assert_eq!(configs(&json!({"nudge.dev/containers": "init"}), spec()), ["by-env"]);
        assert!(configs(&json!({"nudge.dev/notify": "SIGUSR1"}), spec()).is_empty(), "such a pod is refused");
    }

    #[test]
    fn only_volumes_of_pods_that_ask_are_refreshed() {
        let asks: ObjectMeta = serde_json::from_value(json!({"annotations": {"nudge.dev/refresh": "true"}})).unwrap();
        let spec: PodSpec = serde_json::from_value(spec()).unwrap();
        let map = Holds { config_map: true, secret: false };
        let refreshed = |meta: &ObjectMeta, name: &str, holds| refreshed_for(meta, &spec, name, holds);
        assert!(refreshed(&asks, "by-volume", map) && refreshed(&asks, "projected", map));
        assert!(!refreshed(&asks, "by-env", map) && !refreshed(&ObjectMeta::default(), "by-volume", map));
        let secret = Holds { config_map: false, secret: true };
        assert!(refreshed(&asks, "secret", secret) && !refreshed(&asks, "secret", map));
        assert!(!refreshed(&asks, "by-volume", secret));
    }
}
