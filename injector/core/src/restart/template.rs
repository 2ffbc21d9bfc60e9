//! The configs for which the pods of a template must be restarted.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::Notify;
use nudge_protocol::pod::AGENT_CONTAINER;
use serde_json::json;

use super::holds::Holds;
use super::marks::{annotation, is_never_restarted};
use crate::injection;
use crate::injection::annotations::{NOTIFY, VARIABLES, WEBHOOK};
use crate::injection::by_rollout;
use crate::pods::references;

/// The configs that pods of a template take only at their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The published ConfigMaps that the pods read themselves.
    pub published: BTreeSet<String>,
    /// The published Secrets that the pods read themselves.
    pub secrets: BTreeSet<String>,
    /// The configs that the pods get from an agent, Secrets included, and take only by rolling updates (`notify: rollout`).
    pub configs: BTreeSet<String>,
}

impl Uses {
    /// Returns whether the pods take the config by a restart. Pods that read a published object do so only when it `holds` the version.
    pub fn takes(&self, config: &str, holds: Holds) -> bool {
        let reads =
            (holds.config_map && self.published.contains(config)) || (holds.secret && self.secrets.contains(config));
        self.configs.contains(config) || reads
    }

    /// Returns all names, each once.
    pub fn names(&self) -> BTreeSet<&String> {
        self.published.iter().chain(&self.secrets).chain(&self.configs).collect()
    }

    /// Returns what these pods read themselves.
    fn of(spec: &PodSpec) -> Self {
        let named =
            |kind| references(spec).into_iter().filter(move |(of, _)| *of == kind).map(|(_, name)| name).collect();
        Self { published: named(PartKind::ConfigMap), secrets: named(PartKind::Secret), configs: BTreeSet::new() }
    }
}

/// Returns the configs that pods of this template take by a restart. If their agent notifies them of changes, these are the configs that only
/// variables bring.
pub fn restarted_for(meta: &ObjectMeta, spec: &PodSpec) -> Uses {
    if injection::opts_in(meta) {
        return if by_rollout(meta) {
            Uses { configs: subscribed(meta, spec), ..Uses::of(&without_left_alone(meta, spec)) }
        } else {
            Uses::of(&unnotified(meta, spec))
        };
    }
    if is_never_restarted(meta) { Uses::default() } else { Uses::of(spec) }
}

/// Returns the configs that injection gives the pods. None where it refuses the pods, because then there are none.
fn subscribed(meta: &ObjectMeta, spec: &PodSpec) -> BTreeSet<String> {
    let pod = json!({"metadata": {"annotations": meta.annotations, "labels": meta.labels}, "spec": spec});
    let request = injection::read(&pod).ok().flatten();
    request.map(|request| request.configs()).into_iter().flatten().map(|name| name.to_string()).collect()
}

/// Returns whether a pod takes any config by a restart.
pub fn is_restarted(meta: &ObjectMeta, spec: &PodSpec) -> bool {
    !restarted_for(meta, spec).names().is_empty()
}

/// Returns how a container takes another version, as the annotations of its pod say; `None` where they do not say it.
fn notify<'a>(meta: &'a ObjectMeta, container: &Container) -> Option<&'a str> {
    let of = |base: &str| annotation(meta, &format!("{base}.{}", container.name));
    // What has a webhook is notified by it, and what gets variables from a config is restarted in place.
    let posted = of(WEBHOOK).map(|_| Notify::Webhook.as_str());
    let replaced = of(VARIABLES).map(|_| Notify::InPlace.as_str());
    posted.or(replaced).or_else(|| of(NOTIFY)).or_else(|| annotation(meta, NOTIFY))
}

/// The containers about which no annotation says how they take another version, and nothing else. Init containers that end have done
/// their work.
fn unnotified(meta: &ObjectMeta, spec: &PodSpec) -> PodSpec {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let all = spec.containers.iter().chain(sidecars).filter(|container| container.name != AGENT_CONTAINER);
    let left = all.filter(|container| notify(meta, container).is_none());
    PodSpec { containers: left.cloned().collect(), ..PodSpec::default() }
}

/// The pods without the containers that are left alone (`notify: none`), and without the volumes that only these mount.
fn without_left_alone(meta: &ObjectMeta, spec: &PodSpec) -> PodSpec {
    let is_left_alone = |container: &Container| notify(meta, container) == Some(Notify::None.as_str());
    let (left_alone, others): (Vec<&Container>, Vec<&Container>) =
        spec.init_containers.iter().flatten().chain(&spec.containers).partition(|container| is_left_alone(container));
    let (by_left_alone, by_others) = (mounted(left_alone), mounted(others));
    let mut rest = spec.clone();
    rest.containers.retain(|container| !is_left_alone(container));
    rest.init_containers.iter_mut().for_each(|all| all.retain(|container| !is_left_alone(container)));
    let is_used = |name: &str| !by_left_alone.contains(name) || by_others.contains(name);
    rest.volumes.iter_mut().for_each(|volumes| volumes.retain(|volume| is_used(&volume.name)));
    rest
}

/// Returns the names of the volumes that containers mount.
fn mounted(containers: Vec<&Container>) -> BTreeSet<&str> {
    let mounts = containers.into_iter().flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.map(|mount| mount.name.as_str()).collect()
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
        all.entry("nudge.dev/notify".to_owned()).or_insert_with(|| "rollout".to_owned());
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
    }

    #[test]
    fn every_way_to_use_a_secret_counts_where_one_is_published() {
        let spec = json!({
            "containers": [{"name": "app", "envFrom": [{"secretRef": {"name": "by-env-from"}}], "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "by-env", "key": "k"}}}]}],
            "volumes": [{"name": "all", "secret": {"secretName": "by-volume"}}],
            "imagePullSecrets": [{"name": "pull"}],
        });
        let all = restarted_for(&ObjectMeta::default(), &serde_json::from_value(spec).unwrap());
        assert_eq!(all.secrets.iter().collect::<Vec<_>>(), ["by-env", "by-env-from", "by-volume"], "a pull reads anew");
        assert!(all.published.is_empty());
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
        assert_eq!(of(json!({"nudge.dev/notify.web": "none"})), ["of-app", "of-proxy"]);
        assert_eq!(of(json!({"nudge.dev/notify": "none"})), Vec::<String>::new());
        let some = json!({"nudge.dev/notify": "none", "nudge.dev/notify.web": "webhook"});
        assert_eq!(of(some), Vec::<String>::new());
        assert_eq!(of(json!({"nudge.dev/notify.app": "SIGUSR1"})), ["of-proxy", "of-web"]);
        assert_eq!(of(json!({"nudge.dev/webhook.app": "http://localhost/"})), ["of-proxy", "of-web"]);
        assert_eq!(of(json!({"nudge.dev/env.app": "LIVES", "nudge.dev/notify.web": "in-place"})), ["of-proxy"]);
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
    fn with_an_agent_only_pods_that_ask_for_restarts() {
        for notify in ["SIGHUP", "webhook", "in-place", "none"] {
            let annotations = json!({"nudge.dev/inject": "true", "nudge.dev/notify": notify});
            assert!(names(json!({"annotations": annotations}), spec()).is_empty(), "{notify}");
        }
        let listed = json!({"nudge.dev/configs": "one, two"});
        assert_eq!(configs(&listed, json!({"containers": [{"name": "app"}]})), ["one", "two"]);
        assert_eq!(configs(&listed, spec()), ["one", "two"], "the annotation says what the agent has");
        // As injection finds them: what the named containers reference.
        assert_eq!(configs(&json!({}), spec()), ["by-env", "by-env-from", "by-sub-path", "by-volume"]);
        assert_eq!(configs(&json!({"nudge.dev/containers": "init"}), spec()), ["by-env"]);
        let both = json!({"nudge.dev/notify": "SIGUSR1", "nudge.dev/notify.app": "rollout"});
        assert_eq!(configs(&both, spec()).len(), 4, "one container decides for its pod");
        let one = json!({"nudge.dev/configs": "one", "nudge.dev/notify": "none", "nudge.dev/notify.app": "rollout"});
        assert_eq!(configs(&one, spec()), ["one"]);
    }

    #[test]
    fn a_container_that_is_left_alone_is_no_reason_for_a_rollout() {
        let mut spec = spec();
        let mounts = json!([{"name": "all", "mountPath": "/a"}, {"name": "some", "mountPath": "/s"}]);
        let from = json!([{"configMapRef": {"name": "of-web"}}]);
        let web = json!({"name": "web", "envFrom": from, "volumeMounts": mounts});
        spec["containers"].as_array_mut().unwrap().push(web);
        let of = |mut annotations: Value| {
            annotations["nudge.dev/inject"] = json!("true");
            annotations["nudge.dev/configs"] = json!("one");
            let meta = serde_json::from_value(json!({"annotations": annotations})).unwrap();
            let uses = restarted_for(&meta, &serde_json::from_value(spec.clone()).unwrap());
            assert_eq!(uses.configs.iter().collect::<Vec<_>>(), ["one"]);
            (uses.published.into_iter().collect::<Vec<_>>(), uses.secrets.len())
        };
        let all = ["by-env", "by-env-from", "by-sub-path", "by-volume", "of-web", "projected"].map(str::to_owned);
        assert_eq!(of(json!({"nudge.dev/notify": "rollout"})), (all.to_vec(), 1));
        // The other one mounts one of its volumes too.
        let rest = ["by-env", "by-env-from", "by-sub-path", "by-volume"].map(str::to_owned);
        let alone = json!({"nudge.dev/notify": "rollout", "nudge.dev/notify.web": "none"});
        assert_eq!(of(alone), (rest.to_vec(), 0));
    }
}
