//! The uses of configs that require restarts of a template's pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::Notify;
use serde_json::json;

use super::annotations::is_never_restarted;
use super::read_keys::{ReadKeys, read_keys};
use crate::injection;
use crate::injection::{PodReads, ReadPath, UpdateWay, is_updated_by_rollout, stated_way};

/// The configs that the pods of a template take only at their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigUses {
    /// The published objects that the pods read themselves, with the keys that they read.
    pub objects: BTreeMap<(PartKind, String), ReadKeys>,
    /// The configs that the pods get from an agent, Secrets included, and take only by rolling updates: their
    /// annotation says so, or they read files at their start.
    pub configs: BTreeSet<String>,
    /// The configs whose objects the containers of a template with an agent mount. Only a pod shows whether the mounts
    /// have moved.
    pub mounted: BTreeSet<String>,
    /// Whether the pods have an agent that takes versions without a restart: its reports say nothing about what the
    /// pods read only at their start.
    pub has_live_agent: bool,
}

impl ConfigUses {
    /// Returns whether the pods take the config by a restart. Pods that read a published object do so only when it is
    /// one of the `published` ones, which have the version.
    pub fn takes(&self, config: &str, published: &[PartKind]) -> bool {
        self.configs.contains(config) || published.iter().any(|kind| self.keys_of(*kind, config).is_some())
    }

    /// Returns all names, each once.
    pub fn names(&self) -> BTreeSet<&String> {
        self.fixed_names().chain(&self.mounted).collect()
    }

    /// Returns the names of what the pods take only by a restart.
    fn fixed_names(&self) -> impl Iterator<Item = &String> {
        self.objects.keys().map(|(_, name)| name).chain(&self.configs)
    }

    /// Returns the keys of the object of this kind and name that the pods read; `None` if they do not read the object.
    pub fn keys_of(&self, kind: PartKind, name: &str) -> Option<&ReadKeys> {
        self.objects.get(&(kind, name.to_owned()))
    }

    /// Returns the advice about this config if the pods can't be restarted.
    pub fn advice(&self, config: &str) -> &'static str {
        if self.has_live_agent {
            "restart it yourself, or let its containers read files whose mounts move"
        } else if self.configs.contains(config) {
            "restart it yourself, or set another nudge.dev/notify than rollout in its template"
        } else {
            "set spec.agentlessPolicy to Ignore"
        }
    }

    /// Returns the objects that these pods read themselves.
    fn of(spec: &PodSpec) -> Self {
        Self { objects: read_keys(spec), ..Self::default() }
    }

    /// Returns what pods read only at their start whose agent takes versions without a restart.
    fn of_live_agent(meta: &ObjectMeta, spec: &PodSpec) -> Self {
        let mut uses = Self { has_live_agent: true, ..Self::default() };
        let reads = PodReads::of(meta, spec);
        // Keys that the same pods read in other ways count, too: one more restart does no harm.
        let others = without_ignored_containers(meta, spec);
        let keys = read_keys(&others);
        for container in reads.containers() {
            let config = container.config.to_string();
            for (_, path) in reads.fixed_reads(container.config.as_str(), |_| true) {
                match path.object() {
                    Some(kind) => {
                        let object = (kind, config.clone());
                        let keys = keys.get(&object).cloned().unwrap_or(ReadKeys::All);
                        uses.objects.insert(object, keys);
                    }
                    None => _ = uses.configs.insert(config.clone()),
                }
            }
            if container.paths.contains(&ReadPath::KeptFiles) {
                uses.mounted.insert(config);
            }
        }
        uses
    }
}

/// Returns the configs that pods of this template take by a restart. If their agent takes versions without one, these
/// are what they read only at their start.
pub fn restart_uses(meta: &ObjectMeta, spec: &PodSpec) -> ConfigUses {
    if injection::opts_in(meta) {
        return if is_updated_by_rollout(meta) {
            ConfigUses { configs: agent_configs(meta, spec), ..ConfigUses::of(&without_ignored_containers(meta, spec)) }
        } else {
            ConfigUses::of_live_agent(meta, spec)
        };
    }
    if is_never_restarted(meta) { ConfigUses::default() } else { ConfigUses::of(spec) }
}

/// Returns the configs that injection gives the pods. The result is empty if injection refuses the pods, because then
/// there are no pods.
fn agent_configs(meta: &ObjectMeta, spec: &PodSpec) -> BTreeSet<String> {
    let pod = json!({"metadata": {"annotations": meta.annotations, "labels": meta.labels}, "spec": spec});
    let request = injection::read(&pod).ok().flatten();
    request.map(|request| request.configs()).into_iter().flatten().map(|name| name.to_string()).collect()
}

/// Returns whether a pod takes any config by a restart.
pub fn is_restarted(meta: &ObjectMeta, spec: &PodSpec) -> bool {
    restart_uses(meta, spec).fixed_names().next().is_some()
}

/// Returns the spec without the containers that are left alone (`notify: none`), and without the volumes that only
/// these mount.
fn without_ignored_containers(meta: &ObjectMeta, spec: &PodSpec) -> PodSpec {
    let is_ignored = |container: &Container| stated_way(meta, &container.name) == Some(UpdateWay::Agent(Notify::None));
    let (ignored, others): (Vec<&Container>, Vec<&Container>) =
        spec.init_containers.iter().flatten().chain(&spec.containers).partition(|container| is_ignored(container));
    let by_ignored = mounted_volumes(ignored);
    let by_others = mounted_volumes(others);
    let mut remaining = spec.clone();
    remaining.containers.retain(|container| !is_ignored(container));
    remaining.init_containers.iter_mut().for_each(|list| list.retain(|container| !is_ignored(container)));
    let is_used = |name: &str| !by_ignored.contains(name) || by_others.contains(name);
    remaining.volumes.iter_mut().for_each(|volumes| volumes.retain(|volume| is_used(&volume.name)));
    remaining
}

/// Returns the names of the volumes that containers mount.
fn mounted_volumes(containers: Vec<&Container>) -> BTreeSet<&str> {
    let mounts = containers.into_iter().flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.map(|mount| mount.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn names(meta: Value, spec: Value) -> Vec<String> {
        let (meta, spec) = (serde_json::from_value(meta).unwrap(), serde_json::from_value(spec).unwrap());
        let uses = restart_uses(&meta, &spec);
        assert!(uses.configs.is_empty(), "{uses:?}");
        uses.objects.into_keys().filter(|(kind, _)| *kind == PartKind::ConfigMap).map(|(_, name)| name).collect()
    }

    fn configs(annotations: &Value, spec: Value) -> Vec<String> {
        let mut meta: ObjectMeta = serde_json::from_value(json!({"annotations": annotations})).unwrap();
        let all = meta.annotations.get_or_insert_default();
        all.insert("nudge.dev/inject".to_owned(), "true".to_owned());
        all.entry("nudge.dev/notify".to_owned()).or_insert_with(|| "rollout".to_owned());
        restart_uses(&meta, &serde_json::from_value(spec).unwrap()).configs.into_iter().collect()
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
    }

    #[test]
    fn every_way_to_use_a_secret_counts_where_one_is_published() {
        let spec = json!({
            "containers": [{"name": "app", "envFrom": [{"secretRef": {"name": "by-env-from"}}], "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "by-env", "key": "k"}}}]}],
            "volumes": [{"name": "all", "secret": {"secretName": "by-volume"}}],
            "imagePullSecrets": [{"name": "pull"}],
        });
        let all = restart_uses(&ObjectMeta::default(), &serde_json::from_value(spec).unwrap());
        let secrets = ["by-env", "by-env-from", "by-volume"].map(|name| (PartKind::Secret, name.to_owned()));
        assert_eq!(all.objects.keys().cloned().collect::<Vec<_>>(), secrets, "a pull reads anew");
        assert!(all.takes("by-env", &[PartKind::Secret]) && !all.takes("by-env", &[PartKind::ConfigMap]));
    }

    #[test]
    fn the_annotation_decides_as_it_does_for_injection() {
        let opted_out = json!({"labels": {"nudge.dev/inject": "true"}, "annotations": {"nudge.dev/inject": "false"}});
        assert!(!names(opted_out, spec()).is_empty(), "without an agent these pods need a restart");
        let opted_in = json!({"labels": {"nudge.dev/inject": "false"}, "annotations": {"nudge.dev/inject": "true"}});
        assert_eq!(
            names(opted_in, spec()),
            ["by-env", "by-env-from", "by-sub-path"],
            "the agent brings what volumes have"
        );
    }

    #[test]
    fn with_an_agent_what_only_variables_bring() {
        let mut spec = spec();
        spec["initContainers"] = json!([]);
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
        assert_eq!(of(json!({"nudge.dev/notify": "SIGHUP"})), ["of-app", "of-proxy", "of-web"], "no signal changes it");
        assert_eq!(of(json!({"nudge.dev/notify.web": "none"})), ["of-app", "of-proxy"]);
        assert_eq!(of(json!({"nudge.dev/notify": "none"})), Vec::<String>::new());
        let some = json!({"nudge.dev/notify": "none", "nudge.dev/notify.web": "webhook"});
        assert_eq!(of(some), ["of-web"]);
        for notified in
            [json!({"nudge.dev/notify.app": "SIGUSR1"}), json!({"nudge.dev/webhook.app": "http://localhost/"})]
        {
            assert_eq!(of(notified), ["of-app", "of-proxy", "of-web"]);
        }
    }

    #[test]
    fn without_an_agent_pods_are_never_restarted_where_they_say_so() {
        let of = |annotations: Value| names(json!({"annotations": annotations}), spec());
        assert!(of(json!({"nudge.dev/restart": "never"})).is_empty());
        assert!(of(json!({"nudge.dev/restart": "never", "nudge.dev/inject": "false"})).is_empty());
        for other in [json!({"nudge.dev/restart": "maybe"}), json!({"nudge.dev/notify": "none"})] {
            assert_eq!(of(other).len(), 5, "only with an agent");
        }
    }

    #[test]
    fn with_an_agent_only_pods_that_request_restarts() {
        for notify in ["SIGHUP", "webhook", "in-place", "none"] {
            let annotations = json!({"nudge.dev/inject": "true", "nudge.dev/notify": notify});
            let fixed = names(json!({"annotations": annotations}), spec());
            let expected: &[&str] = if notify == "none" { &[] } else { &["by-env", "by-env-from", "by-sub-path"] };
            assert_eq!(fixed, expected, "{notify}");
        }
        let listed = json!({"nudge.dev/configs": "one, two"});
        assert_eq!(configs(&listed, json!({"containers": [{"name": "app"}]})), ["one", "two"]);
        assert_eq!(configs(&listed, spec()), ["one", "two"], "the annotation says what the agent has");
        // As in injection: the references of the named containers.
        assert_eq!(configs(&json!({}), spec()), ["by-env", "by-env-from", "by-sub-path", "by-volume"]);
        assert_eq!(configs(&json!({"nudge.dev/containers": "init"}), spec()), ["by-env"]);
        let both = json!({"nudge.dev/notify": "SIGUSR1", "nudge.dev/notify.app": "rollout"});
        assert_eq!(configs(&both, spec()).len(), 4, "one container decides for its pod");
        let one = json!({"nudge.dev/configs": "one", "nudge.dev/notify": "none", "nudge.dev/notify.app": "rollout"});
        assert_eq!(configs(&one, spec()), ["one"]);
    }

    #[test]
    fn a_container_that_is_ignored_is_no_reason_for_a_rollout() {
        let mut spec = spec();
        let mounts = json!([{"name": "all", "mountPath": "/a"}, {"name": "some", "mountPath": "/s"}]);
        let from = json!([{"configMapRef": {"name": "of-web"}}]);
        let web = json!({"name": "web", "envFrom": from, "volumeMounts": mounts});
        spec["containers"].as_array_mut().unwrap().push(web);
        let of = |mut annotations: Value| {
            annotations["nudge.dev/inject"] = json!("true");
            annotations["nudge.dev/configs"] = json!("one");
            let meta = serde_json::from_value(json!({"annotations": annotations})).unwrap();
            let uses = restart_uses(&meta, &serde_json::from_value(spec.clone()).unwrap());
            assert_eq!(uses.configs.iter().collect::<Vec<_>>(), ["one"]);
            let (maps, secrets): (Vec<_>, Vec<_>) =
                uses.objects.into_keys().partition(|(kind, _)| *kind == PartKind::ConfigMap);
            (maps.into_iter().map(|(_, name)| name).collect::<Vec<_>>(), secrets.len())
        };
        let all = ["by-env", "by-env-from", "by-sub-path", "by-volume", "of-web", "projected"].map(str::to_owned);
        assert_eq!(of(json!({"nudge.dev/notify": "rollout"})), (all.to_vec(), 1));
        // The other one mounts one of its volumes too.
        let rest = ["by-env", "by-env-from", "by-sub-path", "by-volume"].map(str::to_owned);
        let alone = json!({"nudge.dev/notify": "rollout", "nudge.dev/notify.web": "none"});
        assert_eq!(of(alone), (rest.to_vec(), 0));
    }
}
