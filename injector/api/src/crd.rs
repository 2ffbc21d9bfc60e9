//! The CRD, generated from the types. `deploy/base/crd.yaml` holds its text; a test fails when they differ.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube_core::CustomResourceExt;

use super::{ConfigSource, RolloutAnalysis, RolloutPolicy, VersionApproval, VersionedConfig};

/// The CRD of `VersionedConfig`, as an object.
pub fn crd() -> CustomResourceDefinition {
    finished(VersionedConfig::crd())
}

/// The CRD of `ConfigSource`, as an object.
pub fn source_crd() -> CustomResourceDefinition {
    finished(ConfigSource::crd())
}

/// The CRD of `RolloutPolicy`, as an object.
pub fn policy_crd() -> CustomResourceDefinition {
    finished(RolloutPolicy::crd())
}

/// The CRD of `VersionApproval`, as an object.
pub fn approval_crd() -> CustomResourceDefinition {
    finished(VersionApproval::crd())
}

/// The CRD of `RolloutAnalysis`, as an object.
pub fn analysis_crd() -> CustomResourceDefinition {
    finished(RolloutAnalysis::crd())
}

fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let labels = [("app.kubernetes.io/name", "nudge"), ("app.kubernetes.io/component", "crd")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    crd.metadata.labels = Some(labels.into());
    let schemas =
        crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        with_known_formats(schema);
        let status = schema.properties.as_mut().and_then(|properties| properties.get_mut("status"));
        status.into_iter().for_each(without_defaults);
    }
    crd
}

/// What the status holds is ours alone: nothing is filled in by the server.
fn without_defaults(schema: &mut JSONSchemaProps) {
    schema.default = None;
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(without_defaults);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        without_defaults(items);
    }
}

/// Formats of unsigned numbers are Rust's own, and servers warn of what they don't know; `minimum` says the same.
fn with_known_formats(schema: &mut JSONSchemaProps) {
    schema.format.take_if(|format| format.starts_with("uint"));
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(with_known_formats);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        with_known_formats(items);
    }
}

/// The CRD of `VersionedConfig` as it stands in `deploy/`.
pub fn crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    yaml("nudge-injector crd", &crd())
}

/// The CRD of `ConfigSource` as it stands in `deploy/`.
pub fn source_crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    yaml("nudge-injector crd ConfigSource", &source_crd())
}

/// The CRD of `RolloutPolicy` as it stands in `deploy/`.
pub fn policy_crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    yaml("nudge-injector crd RolloutPolicy", &policy_crd())
}

/// The CRD of `VersionApproval` as it stands in `deploy/`.
pub fn approval_crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    yaml("nudge-injector crd VersionApproval", &approval_crd())
}

/// The CRD of `RolloutAnalysis` as it stands in `deploy/`.
pub fn analysis_crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    yaml("nudge-injector crd RolloutAnalysis", &analysis_crd())
}

fn yaml(command: &str, crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    let head = format!("# Generated from the types in injector/api by `{command}`; do not edit.\n");
    Ok(format!("{head}{}", serde_saphyr::to_string(crd)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_in_deploy_are_what_the_types_say() {
        for (file, command, made) in [
            ("base/crd.yaml", "crd", crd_yaml()),
            ("base/crd-policies.yaml", "crd RolloutPolicy", policy_crd_yaml()),
            ("base/crd-approvals.yaml", "crd VersionApproval", approval_crd_yaml()),
            ("components/sources/crd.yaml", "crd ConfigSource", source_crd_yaml()),
            ("components/analysis/crd.yaml", "crd RolloutAnalysis", analysis_crd_yaml()),
        ] {
            let path = format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
            let stored = std::fs::read_to_string(path).unwrap_or_default();
            assert!(
                stored == made.unwrap(),
                "deploy/{file} is not up to date: nudge-injector {command} > deploy/{file}"
            );
        }
    }

    #[test]
    fn every_field_is_described() {
        fn check(path: &str, schema: &serde_json::Value, bare: &mut Vec<String>) {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                if property["description"].as_str().unwrap_or_default().is_empty() {
                    bare.push(path.clone());
                }
                check(&path, property, bare);
                check(&path, &property["items"], bare);
            }
        }
        for crd in [crd(), approval_crd(), policy_crd(), source_crd(), analysis_crd()] {
            let crd = serde_json::to_value(crd).unwrap();
            let mut bare = Vec::new();
            check("", &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut bare);
            assert!(bare.is_empty(), "{bare:?}");
        }
    }
}
