//! The rules that `validate` and `create` apply to content: those of a file, or of a config in the cluster.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{ConfigMapKeyRef, PartKind, ValidationRule, VersionedConfig};
use nudge_core::versions::Contents;
use nudge_protocol::error_chain::without_os_code;
use nudge_validation::{Report, Rules, SchemaTexts, dictionary_of, references, schema_of};
use serde_json::Value;

use crate::failure::{Failure, doing};
use crate::session::Session;

/// The fields of a rule. Others are refused, because a misspelled field would check nothing.
const FIELDS: [&str; 7] = ["format", "key", "message", "name", "required", "rule", "schema"];

/// Rules, and their origin.
#[derive(Debug)]
pub(crate) struct NamedRules {
    pub(crate) rules: Rules,
    /// The name of their origin, such as `shop.yaml` or `config shop`.
    pub(crate) name: String,
    /// The number of rules.
    pub(crate) count: usize,
    /// The config that has the rules, if it is known.
    pub(crate) config: Option<String>,
}

/// Returns whether the text is a path, and not the name of a config or a version.
pub(crate) fn is_path(text: &str) -> bool {
    let extension = Path::new(text).extension().and_then(|extension| extension.to_str());
    text.contains('/') || matches!(extension, Some("yaml" | "yml" | "json")) || Path::new(text).is_dir()
}

/// Reads the rules of a file.
pub(crate) fn rules_of_file(path: &str) -> Result<NamedRules, Failure> {
    let failure = |cause: String| Failure::usage(format!("--rules {path}: {cause}"));
    let text = std::fs::read_to_string(path).map_err(|error| failure(without_os_code(&error.to_string())))?;
    let RulesFile { config, rules, maps } = parse(&text).map_err(failure)?;
    let mut texts = SchemaTexts::new();
    for reference in references(&rules) {
        let text = schema_of(maps.get(&reference.name).cloned(), reference);
        let not_in_file =
            |cause: String| failure(format!("{cause}; without a cluster, the ConfigMap must be in the same file"));
        texts.insert(reference.clone(), text.map_err(not_in_file)?);
    }
    let (count, compiled) = (rules.len(), Rules::compile(&rules, &texts));
    let rules = compiled.map_err(|error| failure(error.detailed_message()))?;
    Ok(NamedRules { rules, name: path.to_owned(), count, config })
}

/// Reads the rules of a config in the cluster.
pub(crate) async fn rules_of_config(session: &Session, config: &VersionedConfig) -> Result<NamedRules, Failure> {
    let name = config.metadata.name.clone().unwrap_or_default();
    let failure = |cause: String| Failure::new(format!("spec.validation of config {name}: {cause}"));
    let rules = &config.spec.validation;
    let mut texts = SchemaTexts::new();
    for reference in references(rules) {
        let ConfigMapKeyRef { name: map, .. } = reference;
        let stored =
            session.api::<ConfigMap>().get_opt(map).await.map_err(doing(format!("reading ConfigMap {map}")))?;
        texts.insert(reference.clone(), schema_of(stored, reference).map_err(failure)?);
    }
    let (count, compiled) = (rules.len(), Rules::compile(rules, &texts));
    let rules = compiled.map_err(|error| failure(error.detailed_message()))?;
    Ok(NamedRules { rules, name: format!("config {name}"), count, config: Some(name) })
}

/// Checks these parts together.
pub(crate) fn check<'a>(
    rules: &NamedRules,
    parts: impl IntoIterator<Item = (PartKind, &'a Contents)>,
) -> Result<(), Report> {
    rules.rules.check(&dictionary_of(parts))
}

/// The content of a file with rules.
#[derive(Default)]
struct RulesFile {
    config: Option<String>,
    rules: Vec<ValidationRule>,
    maps: BTreeMap<String, ConfigMap>,
}

/// Parses a VersionedConfig, a list of rules, or an object with such a list as `validation`. The file may also have
/// ConfigMaps with schemas.
fn parse(text: &str) -> Result<RulesFile, String> {
    let documents = serde_saphyr::from_multiple::<Value>(text);
    let documents = documents.map_err(|error| format!("it is not YAML: {}", without_os_code(&error.to_string())))?;
    let mut file = RulesFile::default();
    let mut has_rules = false;
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        if document["kind"] == "ConfigMap" {
            let map: ConfigMap = read(document)?;
            file.maps.insert(map.metadata.name.clone().unwrap_or_default(), map);
            continue;
        }
        let rules = match (&document, document["kind"].as_str()) {
            (_, Some("VersionedConfig")) => {
                file.config = document["metadata"]["name"].as_str().map(str::to_owned);
                document["spec"]["validation"].clone()
            }
            (Value::Array(_), _) => document,
            (_, None) => document["validation"].clone(),
            // The file may have other manifests.
            (_, Some(_)) => continue,
        };
        if has_rules {
            return Err("it has rules twice; keep those of one config".to_owned());
        }
        has_rules = true;
        for (rule, number) in rules.as_array().into_iter().flatten().zip(1..) {
            let fields = rule.as_object().into_iter().flat_map(|rule| rule.keys());
            if let Some(field) = fields.into_iter().find(|field| !FIELDS.contains(&field.as_str())) {
                return Err(format!("rule {number} has the field {field}; a rule has: {}", FIELDS.join(", ")));
            }
            file.rules.push(read(rule.clone()).map_err(|error| format!("rule {number}: {error}"))?);
        }
    }
    if file.rules.is_empty() {
        return Err("it has no rules; write a VersionedConfig with spec.validation, or a list of rules".to_owned());
    }
    Ok(file)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| without_os_code(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_config_or_rules() {
        let list = "- {name: json, key: a.json, format: json}\n- {name: keys, required: [a.json]}\n";
        let config = "kind: VersionedConfig\nmetadata: {name: shop}\nspec: {validation: [{name: keys, required: [a]}]}\n---\nkind: ConfigMap\nmetadata: {name: s}";
        assert_eq!(parse(list).map(|file| (file.rules.len(), file.config)), Ok((2, None)));
        let file = parse(config).map(|file| (file.rules.len(), file.config, file.maps.len()));
        assert_eq!(file, Ok((1, Some("shop".to_owned()), 1)));
        assert_eq!(parse("validation: [{name: keys, required: [a]}]").map(|file| file.rules.len()), Ok(1));
        for (text, cause) in [
            ("{", "it is not YAML"),
            ("a: 1", "it has no rules"),
            ("kind: VersionedConfig", "it has no rules"),
            ("- {name: a, key: a, fromat: json}", "rule 1 has the field fromat; a rule has: format, key"),
            ("- {name: a, key: a, format: jsn}", "rule 1: unknown variant"),
            ("- {key: a, format: json}", "rule 1: missing field `name`"),
            ("- {name: a, required: [a]}\n---\n- {name: b, required: [b]}", "it has rules twice"),
        ] {
            let refused = parse(text).err().unwrap_or_default();
            assert!(refused.starts_with(cause), "{text}: {refused}");
        }
    }

    #[test]
    fn paths_are_no_names() {
        for path in ["config/", "./a", "a.yaml", "/tmp", "rules.json"] {
            assert!(is_path(path), "{path}");
        }
        for name in ["shop", "1.0.1", "no-such-folder"] {
            assert!(!is_path(name), "{name}");
        }
    }
}
