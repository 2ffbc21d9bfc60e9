//! The ConfigMaps and Secrets that a pod names.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;
use nudge_api::PartKind;

/// Returns the ConfigMaps and Secrets that a pod's specification names, in volumes and variables.
pub fn references(spec: &PodSpec) -> BTreeSet<(PartKind, String)> {
    let mut references = BTreeSet::new();
    let mut add = |kind, name: &str| {
        references.insert((kind, name.to_owned()));
    };
    for volume in spec.volumes.iter().flatten() {
        if let Some(source) = &volume.config_map {
            add(PartKind::ConfigMap, &source.name);
        }
        if let Some(name) = volume.secret.as_ref().and_then(|source| source.secret_name.as_deref()) {
            add(PartKind::Secret, name);
        }
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            if let Some(source) = &source.config_map {
                add(PartKind::ConfigMap, &source.name);
            }
            if let Some(source) = &source.secret {
                add(PartKind::Secret, &source.name);
            }
        }
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for source in container.env_from.iter().flatten() {
            if let Some(source) = &source.config_map_ref {
                add(PartKind::ConfigMap, &source.name);
            }
            if let Some(source) = &source.secret_ref {
                add(PartKind::Secret, &source.name);
            }
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(source) = &source.config_map_key_ref {
                add(PartKind::ConfigMap, &source.name);
            }
            if let Some(source) = &source.secret_key_ref {
                add(PartKind::Secret, &source.name);
            }
        }
    }
    references
}
