use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{ConfigMapKeyRef, ValidationRule};

/// The texts of the schemas in ConfigMaps.
pub type SchemaTexts = BTreeMap<ConfigMapKeyRef, String>;

/// Returns the places of the schemas that must be read before the rules can be compiled.
pub fn references(rules: &[ValidationRule]) -> BTreeSet<&ConfigMapKeyRef> {
    rules.iter().filter_map(|rule| rule.schema.as_ref()?.config_map_key_ref.as_ref()).collect()
}

/// Returns the schema in the ConfigMap, or the reason why it can't be used. The ConfigMap must be immutable: if rules
/// changed by themselves, they would judge two versions differently, and no user would know why.
pub fn schema_of(map: Option<ConfigMap>, reference: &ConfigMapKeyRef) -> Result<String, String> {
    let ConfigMapKeyRef { name, key } = reference;
    let Some(map) = map else {
        return Err(format!("ConfigMap {name}, which holds a schema, does not exist; create it"));
    };
    if map.immutable != Some(true) {
        return Err(format!(
            "ConfigMap {name}, which holds a schema, is not immutable; create one with immutable: true"
        ));
    }
    let text = map.data.and_then(|mut data| data.remove(key));
    text.ok_or_else(|| {
        format!("ConfigMap {name} has no text with the key {key}, which must be a schema; create another one")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_text_of_an_immutable_config_map() {
        let reference = ConfigMapKeyRef { name: "s".to_owned(), key: "k".to_owned() };
        let of = |map: serde_json::Value| schema_of(serde_json::from_value(map).unwrap(), &reference);
        assert_eq!(of(json!({"metadata": {}, "immutable": true, "data": {"k": "{}"}})), Ok("{}".to_owned()));
        let refused = |map| of(map).unwrap_err();
        assert!(refused(json!(null)).ends_with("does not exist; create it"));
        assert!(refused(json!({"metadata": {}, "data": {"k": "{}"}})).contains("is not immutable"));
        assert!(
            refused(json!({"metadata": {}, "immutable": true, "binaryData": {"k": "e30="}})).contains("has no text")
        );
    }
}
