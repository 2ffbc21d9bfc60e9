//! The holder of `spec.version` of a config, by the field managers that the API server keeps. Users may write these, so
//! a request that changes the holder needs the rights of a change of the spec.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use nudge_api::VersionedConfig;
use serde_json::Value;

/// The field manager of sources.
pub const FIELD_MANAGER: &str = "nudge-sources";

/// Returns the manager other than sources that set `spec.version` of the config with these metadata.
pub fn version_manager(meta: &ObjectMeta) -> Option<&str> {
    let is_manager =
        |entry: &&ManagedFieldsEntry| entry.manager.as_deref() != Some(FIELD_MANAGER) && has_version(entry);
    let entry = meta.managed_fields.iter().flatten().find(is_manager)?;
    Some(entry.manager.as_deref().unwrap_or("somebody"))
}

fn has_version(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:version").is_some())
}

/// Returns the managers of a config after all others have released `spec.version`. Its value stays.
pub fn release_version_field(config: &VersionedConfig) -> Vec<ManagedFieldsEntry> {
    let mut entries = config.metadata.managed_fields.clone().unwrap_or_default();
    for entry in entries.iter_mut().filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER)) {
        let fields = entry.fields_v1.as_mut().and_then(|fields| fields.0.get_mut("f:spec"));
        if let Some(Value::Object(spec)) = fields {
            spec.remove("f:version");
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(managers: &[(&str, bool)]) -> VersionedConfig {
        let entry = |(manager, holds): &(&str, bool)| {
            let spec =
                if *holds { json!({"f:version": {}, "f:historyLimit": {}}) } else { json!({"f:historyLimit": {}}) };
            let entry = json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": spec}});
            serde_json::from_value(entry).unwrap()
        };
        let mut config = VersionedConfig::default();
        config.metadata.managed_fields = Some(managers.iter().map(entry).collect());
        config
    }

    #[test]
    fn who_sets_the_field_holds_it_until_it_is_released() {
        assert_eq!(version_manager(&ObjectMeta::default()), None);
        assert_eq!(version_manager(&config(&[(FIELD_MANAGER, true), ("flux", false)]).metadata), None);
        let mut held = config(&[(FIELD_MANAGER, true), ("flux", true)]);
        assert_eq!(version_manager(&held.metadata), Some("flux"));
        held.metadata.managed_fields = Some(release_version_field(&held));
        assert_eq!(version_manager(&held.metadata), None);
        let kept = serde_json::to_value(&held.metadata.managed_fields).unwrap();
        assert_eq!(kept[1]["fieldsV1"]["f:spec"], json!({"f:historyLimit": {}}));
        assert_eq!(kept[0]["fieldsV1"]["f:spec"]["f:version"], json!({}));
    }
}
