//! Injection of typical pods: fixtures, and tests by concept.

mod added;
mod configs;
mod defaults;
mod files;
mod gate;
mod in_place;
mod kept;
mod mountpoints;
mod moved_mounts;
mod pod_request;
mod runtimes;
mod uptake_warnings;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use nudge_api::PartKind;
use nudge_protocol::{ConfigName, pod as names};
use serde_json::{Value, json};

use super::*;
use crate::baseline::{BaselineLabel, BaselineVerdict};

pub(super) fn settings() -> InjectionSettings {
    InjectionSettings {
        agent_image: "example.com/nudge-agent:1".to_owned(),
        agent_kill_image: "example.com/nudge-agent-kill:1".to_owned(),
        image_pull_policy: None,
        image_pull_secrets: vec!["pull".to_owned()],
        hub: "https://nudge-hub.nudge-system.svc".to_owned(),
        foreign_containers: vec!["istio-proxy".to_owned(), "istio-init".to_owned()],
        foreign_containers_allowed: false,
        agent_defaults: AgentDefaults::default(),
        unknown_keys: UnknownKeys::Refuse,
    }
}

/// The verdict about an object whose label makes it a config.
pub(super) const AS_CONFIG: BaselineVerdict = BaselineVerdict::Config(BaselineLabel::Object);

pub(super) fn facts() -> InjectionFacts {
    let part = |kind, name: &str, part| MountedPart { kind, name: name.to_owned(), part, digest: None };
    let parts = vec![part(PartKind::ConfigMap, "shop-1.0.0", 1), part(PartKind::Secret, "shop-keys-1", 2)];
    let shop = ResolvedConfig { version: Some("1.0.0".to_owned()), parts, ..ResolvedConfig::default() };
    InjectionFacts {
        features: Features { native_sidecars: true, ..Features::default() },
        hub_ca: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned(),
        configs: [(ConfigName::new("shop").unwrap(), shop)].into(),
        config_maps: [("shop".to_owned(), AS_CONFIG), ("web".to_owned(), AS_CONFIG)].into(),
        secrets: BTreeMap::new(),
        limits: Vec::new(),
    }
}

/// A pod with one container `app` that opts in with config `shop`, and these annotations.
pub(super) fn pod(annotations: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "web-", "annotations": {"nudge.dev/inject": "true", "nudge.dev/configs": "shop"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    });
    for (name, value) in annotations.as_object().unwrap() {
        pod["metadata"]["annotations"][format!("nudge.dev/{name}")] = value.clone();
    }
    pod
}

pub(super) fn try_with(pod: &Value, facts: &InjectionFacts) -> Result<(Value, Vec<String>), String> {
    try_under(pod, facts, &settings())
}

pub(super) fn try_under(
    pod: &Value,
    facts: &InjectionFacts,
    settings: &InjectionSettings,
) -> Result<(Value, Vec<String>), String> {
    let message = |refusal: InjectionRefusal| refusal.to_string();
    let request = read(pod).map_err(message)?.ok_or("does not opt in")?;
    let injection = inject(pod, &request, facts, settings).map_err(message)?;
    let mut injected = pod.clone();
    json_patch::patch(&mut injected, &injection.patch).unwrap();
    Ok((injected, injection.warnings))
}

pub(super) fn injected(pod: &Value) -> Value {
    try_with(pod, &facts()).unwrap().0
}

pub(super) fn warned(pod: &Value) -> String {
    try_with(pod, &facts()).unwrap().1.join("\n")
}

pub(super) fn refused(pod: &Value) -> String {
    try_with(pod, &facts()).unwrap_err()
}

pub(super) fn with_spec(annotations: &Value, spec: &Value) -> Value {
    let mut pod = pod(annotations);
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

pub(super) fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let all = container["env"].as_array().unwrap();
    all.iter().find(|variable| variable["name"] == name).map_or(&Value::Null, |variable| match &variable["value"] {
        Value::Null => &variable["valueFrom"],
        value => value,
    })
}
