//! The CRDs, generated from the types. `deploy/` holds their texts; a test fails when they differ.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube_core::CustomResourceExt;

/// Returns the CRD of a kind.
pub fn crd<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    let labels = [("app.kubernetes.io/name", "nudge"), ("app.kubernetes.io/component", "crd")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    crd.metadata.labels = Some(labels.into());
    let schemas =
        crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        apply_conventions(schema);
        let status = schema.properties.as_mut().and_then(|properties| properties.get_mut("status"));
        status.into_iter().for_each(remove_defaults);
    }
    crd
}

/// Removes the defaults of the status, which only Nudge writes: the API server must fill in nothing.
fn remove_defaults(schema: &mut JSONSchemaProps) {
    schema.default = None;
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(remove_defaults);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        remove_defaults(items);
    }
}

/// Applies the conventions of the Kubernetes API. Integers are signed, and `minimum` says that they are not negative. A
/// field without a value is left out and never null. A list that names no type is replaced as a whole, and says so.
fn apply_conventions(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if schema.type_.as_deref() == Some("array") {
        schema.x_kubernetes_list_type.get_or_insert_with(|| "atomic".to_owned());
    }
    for (unsigned, signed) in [("uint8", "int32"), ("uint16", "int32"), ("uint32", "int32"), ("uint64", "int64")] {
        if schema.format.as_deref() == Some(unsigned) {
            schema.format = Some(signed.to_owned());
        }
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(apply_conventions);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        apply_conventions(items);
    }
}

/// Returns the CRD of a kind as text, as `deploy/` has it.
pub fn crd_yaml<K: CustomResourceExt>() -> Result<String, serde_saphyr::ser::Error> {
    let crd = crd::<K>();
    let kind = match crd.spec.names.kind.as_str() {
        "VersionedConfig" => String::new(),
        kind => format!(" {kind}"),
    };
    let head = format!("# Generated from the types in injector/api by `nudge-injector crd{kind}`; do not edit.\n");
    Ok(head + &serde_saphyr::to_string(&crd)?)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{ConfigSource, RolloutAnalysis, RolloutPolicy, VersionApproval, VersionedConfig};

    fn all_crds() -> [CustomResourceDefinition; 5] {
        [
            crd::<VersionedConfig>(),
            crd::<VersionApproval>(),
            crd::<RolloutPolicy>(),
            crd::<ConfigSource>(),
            crd::<RolloutAnalysis>(),
        ]
    }

    #[test]
    fn the_files_in_deploy_are_what_the_types_say() {
        for (file, command, made) in [
            ("base/crd.yaml", "crd", crd_yaml::<VersionedConfig>()),
            ("base/crd-policies.yaml", "crd RolloutPolicy", crd_yaml::<RolloutPolicy>()),
            ("base/crd-approvals.yaml", "crd VersionApproval", crd_yaml::<VersionApproval>()),
            ("components/sources/crd.yaml", "crd ConfigSource", crd_yaml::<ConfigSource>()),
            ("components/analysis/crd.yaml", "crd RolloutAnalysis", crd_yaml::<RolloutAnalysis>()),
        ] {
            let path = format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
            let stored = std::fs::read_to_string(path).unwrap_or_default();
            assert!(
                stored == made.unwrap(),
                "deploy/{file} is not up to date: nudge-injector {command} > deploy/{file}"
            );
        }
    }

    /// What the conventions of the Kubernetes API ask of a schema (sig-architecture/api-conventions.md), as far as it
    /// can be seen.
    fn faults(path: &str, schema: &Value, faults: &mut Vec<String>) {
        let mut fault = |what: &str| faults.push(format!("{path}: {what}"));
        let name = path.rsplit('.').next().unwrap_or_default();
        let (kind, format) =
            (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str().unwrap_or_default());
        if schema["description"].as_str().unwrap_or_default().is_empty() && !path.ends_with(']') {
            fault("has no description");
        }
        if !schema["nullable"].is_null() {
            fault("may be null");
        }
        if kind == "integer" && !matches!(format, "int32" | "int64") {
            fault("is neither int32 nor int64");
        }
        if (format == "date-time") != name.ends_with("Time") {
            fault("a time is called so, and nothing else");
        }
        let duration = schema["pattern"].as_str().is_some_and(|pattern| pattern.contains("ms|s|m|h"));
        if duration || ["Interval", "Duration", "Timeout", "At", "Since", "Until"].iter().any(|end| name.ends_with(end))
        {
            fault("a duration is a number of seconds and called so, and a time ends with Time");
        }
        if kind == "array" && (schema["maxItems"].is_null() || schema["x-kubernetes-list-type"].is_null()) {
            fault("a list has a type and a bound");
        }
        let bounded = ["maxLength", "enum", "x-kubernetes-int-or-string"].iter().any(|bound| !schema[bound].is_null());
        if kind == "string" && path.starts_with(".spec") && !bounded && format.is_empty() {
            fault("a text has a bound");
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            // The type of a condition is Kubernetes' own.
            if name != "conditions" {
                self::faults(&format!("{path}.{name}"), property, faults);
            }
        }
        if schema["items"].is_object() {
            self::faults(&format!("{path}[]"), &schema["items"], faults);
        }
    }

    #[test]
    fn schemas_follow_the_conventions() {
        let mut all = Vec::new();
        for crd in all_crds() {
            let crd = serde_json::to_value(crd).unwrap();
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            for part in ["spec", "status"].into_iter().filter(|part| schema[*part].is_object()) {
                let before = all.len();
                faults(&format!(".{part}"), &schema[part], &mut all);
                for fault in &mut all[before..] {
                    *fault = format!("{} {fault}", crd["spec"]["names"]["kind"].as_str().unwrap());
                }
            }
        }
        assert!(all.is_empty(), "{}", all.join("\n"));
    }

    /// What `kubectl explain` shows of a field must be of use: what it is, its unit, what it may be, and what it is
    /// when it is left out.
    fn vague(path: &str, schema: &Value, faults: &mut Vec<String>) {
        let mut fault = |what: &str| faults.push(format!("{path}: {what}"));
        let text = schema["description"].as_str().unwrap_or_default();
        let name = path.rsplit('.').next().unwrap_or_default();
        if ["Its ", "It ", "This one", "That of", "The one", "The same", "When it ", "When that "]
            .iter()
            .any(|it| text.starts_with(it))
        {
            fault("does not name its subject");
        }
        // That of labels is Kubernetes' own, and says it.
        if !path.ends_with(']') && name != "matchLabels" && text.split_whitespace().count() < 3 {
            fault("says less than its name");
        }
        if name.ends_with("Seconds") && !text.to_ascii_lowercase().contains("second") {
            fault("has a unit");
        }
        let limits = [&schema["minimum"], &schema["maximum"]].map(Value::as_f64);
        if path.starts_with(".spec") && schema["type"] == "integer" && limits.iter().all(Option::is_some) {
            let (limits, default) = (limits.iter().flatten(), schema["default"].as_f64());
            let numbers: Vec<&str> = text.split(|one: char| !one.is_ascii_digit()).collect();
            if limits.chain(&default).any(|number| !numbers.contains(&number.to_string().as_str())) {
                fault("has a range, and perhaps a default");
            }
        }
        let values = schema["enum"].as_array().filter(|_| !path.ends_with(']'));
        if values.into_iter().flatten().filter_map(Value::as_str).any(|value| !text.contains(value)) {
            fault("has values, each with an effect");
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if name != "conditions" {
                vague(&format!("{path}.{name}"), property, faults);
            }
        }
        if schema["items"].is_object() {
            vague(&format!("{path}[]"), &schema["items"], faults);
        }
    }

    #[test]
    fn every_description_is_of_use() {
        let mut all = Vec::new();
        for crd in all_crds() {
            let crd = serde_json::to_value(crd).unwrap();
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            for part in ["spec", "status"].into_iter().filter(|part| schema[*part].is_object()) {
                vague(&format!(".{part}"), &schema[part], &mut all);
            }
        }
        assert!(all.is_empty(), "{}", all.join("\n"));
    }
}
