//! The configs of a pod: the ones it names, or else the configs of the ConfigMaps and Secrets that its containers
//! reference.

use nudge_api::PartKind;
use nudge_protocol::ConfigName;
use nudge_protocol::labels::BASELINE;
use nudge_protocol::limits::MAX_CONFIGS;

use super::annotations::{AGENT_START_TIMEOUT, CONFIGS, INJECT};
use super::pod_request::PodRequest;
use super::references::{ConfigReference, is_bundle, referenced_secrets, references};
use crate::baseline::BaselineVerdict;
use crate::injection::facts::InjectionFacts;
use crate::injection::refusal::{InjectionRefusal, shorten};
use crate::injection::settings::InjectionSettings;
use crate::injection::start_gate::Gate;
use crate::injection::user_pod::UserPod;

/// Returns the pod's configs in the order of merging, and warnings.
pub(in crate::injection) fn resolve_configs(
    pod: &UserPod,
    request: &PodRequest,
    facts: &InjectionFacts,
    settings: &InjectionSettings,
    gate: Gate,
) -> Result<(Vec<ConfigName>, Vec<String>), InjectionRefusal> {
    let (configs, warnings) = match &request.named {
        Some(named) => named_configs(named, request, facts, settings, gate),
        None => referenced_configs(pod, request, facts, &settings.foreign_containers)?,
    };
    if let Some(name) = configs.iter().find(|name| facts.configs.get(*name).is_some_and(|config| config.closed)) {
        return Err(InjectionRefusal(format!(
            "service account {} of this pod may not get config {name}, because spec.allowedServiceAccounts of \
             VersionedConfig {name} does not name it; add it there, or name other configs with annotation {CONFIGS}",
            shorten(pod.service_account())
        )));
    }
    Ok((configs, warnings))
}

/// Returns the warning for a pod that sets the timeout of the start hook, but has no hook.
pub(in crate::injection) fn gate_warning(gate: Gate, pod: &UserPod, request: &PodRequest) -> Option<String> {
    (gate == Gate::Probe && request.start_timeout.is_some()).then(|| {
        format!(
            "annotation {AGENT_START_TIMEOUT} has no effect: this pod has restartPolicy: {}, so its start waits for its configs until they \
             are there; remove it",
            pod.restart_policy()
        )
    })
}

/// Returns the configs that an annotation names.
fn named_configs(
    named: &[ConfigName],
    request: &PodRequest,
    facts: &InjectionFacts,
    settings: &InjectionSettings,
    gate: Gate,
) -> (Vec<ConfigName>, Vec<String>) {
    let timeout = request.start_timeout.as_deref().or(settings.agent_defaults.start_timeout.as_deref());
    let tries = match gate {
        Gate::Hook => format!(", {} for each try ({AGENT_START_TIMEOUT})", timeout.unwrap_or("30s")),
        Gate::Probe => String::new(),
    };
    let absent = named.iter().filter(|name| facts.configs.get(*name).is_none_or(|config| config.version.is_none()));
    let warnings = absent.map(|name| {
        let remedy = if facts.configs.contains_key(name) {
            String::new()
        } else {
            format!("; if ConfigMap {name} is to become this config, {}", baseline_instruction(name.as_str()))
        };
        format!("config {name} has no current version yet: the start of the pod waits for it{tries}{remedy}")
    });
    (named.to_vec(), warnings.collect())
}

/// Returns the instruction for making a ConfigMap a config.
fn baseline_instruction(name: &str) -> String {
    format!("set its label {BASELINE}: \"true\" or run kubectl nudge baseline {name}")
}

/// Returns the configs that the containers reference.
fn referenced_configs(
    pod: &UserPod,
    request: &PodRequest,
    facts: &InjectionFacts,
    foreign: &[String],
) -> Result<(Vec<ConfigName>, Vec<String>), InjectionRefusal> {
    let referenced = references(pod, request.containers.as_deref(), foreign);
    let exists = |reference: &ConfigReference| {
        let name = &reference.name;
        facts.config_maps.contains_key(name) || facts.configs.keys().any(|config| config.as_str() == name)
    };
    // The configs of a pod are fixed when the pod is created, so a config that is created later would never be among
    // them.
    if let Some(missing) = referenced.iter().find(|reference| reference.required && !exists(reference)) {
        return Err(InjectionRefusal(format!(
            "its containers use ConfigMap {}, which does not exist; create it first, or name the pod's configs with annotation {CONFIGS}",
            missing.name
        )));
    }
    let missing = referenced.iter().filter(|reference| !exists(reference) && !is_bundle(&reference.name));
    let warnings = missing.map(|reference| {
        format!(
            "ConfigMap {} does not exist, so this pod never gets it as a config; name it with {CONFIGS} to wait for it",
            reference.name
        )
    });
    let mut warnings: Vec<String> = warnings.collect();
    let has_config = |name: &str| facts.configs.keys().any(|config| config.as_str() == name);
    let verdict = |kind: PartKind, name: &str| facts.verdict(kind, name).filter(|_| !has_config(name));
    let becomes_config = |kind, name: &str| verdict(kind, name).is_some_and(BaselineVerdict::becomes_config);
    let secrets = referenced_secrets(pod, request.containers.as_deref(), foreign);
    let is_of_config = |name: &ConfigName| {
        let config = facts.configs.get(name);
        config.is_some_and(|config| config.serves_secrets && config.objects.contains(&PartKind::Secret))
    };
    let configs = referenced.iter().filter_map(|reference| ConfigName::new(&reference.name).ok());
    let mut configs: Vec<ConfigName> = configs
        .filter(|name| facts.configs.contains_key(name) || becomes_config(PartKind::ConfigMap, name.as_str()))
        .collect();
    for name in secrets.iter().filter_map(|name| ConfigName::new(name).ok()) {
        if (is_of_config(&name) || becomes_config(PartKind::Secret, name.as_str())) && !configs.contains(&name) {
            configs.push(name);
        }
    }
    let map_names = || referenced.iter().map(|reference| reference.name.as_str());
    let objects = map_names()
        .map(|name| (PartKind::ConfigMap, name))
        .chain(secrets.iter().map(|name| (PartKind::Secret, name.as_str())));
    let ordinary = objects.filter_map(|(kind, name)| match verdict(kind, name)? {
        BaselineVerdict::Ordinary(cause) => Some(format!("no config is made of {kind} {name}, because {cause}")),
        _ => None,
    });
    let ordinary: Vec<String> = ordinary.collect();
    let unlabelled: Vec<&str> = map_names()
        .filter(|name| verdict(PartKind::ConfigMap, name) == Some(BaselineVerdict::Unwanted) && !is_bundle(name))
        .collect();
    if let Some(first) = unlabelled.first() {
        let names = shorten(&unlabelled.join(", "));
        if configs.is_empty() {
            return Err(InjectionRefusal(format!(
                "this pod's containers use no config; if a ConfigMap of theirs ({names}) is to become one, {}, or name the pod's configs with \
                 annotation {CONFIGS}",
                baseline_instruction(first)
            )));
        }
        warnings.push(format!("ConfigMaps that are not configs, and do not become configs by themselves: {names}"));
    }
    if configs.is_empty() {
        if let Some(first) = ordinary.first() {
            return Err(InjectionRefusal(format!(
                "its containers use no config: {first}; name the pod's configs with annotation {CONFIGS}, or remove {INJECT}"
            )));
        }
        return Err(InjectionRefusal(format!(
            "no container of this pod uses a ConfigMap that exists and may change (not immutable); name its configs with annotation \
             {CONFIGS}, such as {CONFIGS}: shop"
        )));
    }
    warnings.extend(ordinary.into_iter().map(|cause| format!("{cause}; the pod reads it as it would without Nudge")));
    if configs.len() > MAX_CONFIGS {
        return Err(InjectionRefusal(format!(
            "this pod's containers use {} configs, and a pod can have at most {MAX_CONFIGS} configs; name its configs with annotation {CONFIGS}",
            configs.len()
        )));
    }
    Ok((configs, warnings))
}
