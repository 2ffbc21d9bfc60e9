//! Who else writes `spec.current`, such as a GitOps tool that will set it back. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use super::session::FIELD_MANAGER;

/// Managers of `spec.current` other than this command.
pub(super) fn others(entries: &[ManagedFieldsEntry]) -> Vec<String> {
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.and_then(|fields| fields.get("f:spec")?.get("f:current")).is_some()
    };
    let mut names: Vec<String> = entries.iter().filter(owns).filter_map(|entry| entry.manager.clone()).collect();
    names.retain(|name| name != FIELD_MANAGER);
    names.sort();
    names.dedup();
    names
}

/// What the user should know about them.
pub(super) fn warning(config: &str, entries: &[ManagedFieldsEntry]) -> Option<String> {
    let others = others(entries);
    let names = others.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" and ");
    (!others.is_empty()).then(|| {
        format!("spec.current of config {config} is managed by {names}, which may set it back; change it where that takes it from")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(manager: &str, fields: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({"manager": manager, "operation": "Apply", "fieldsV1": fields})).unwrap()
    }

    #[test]
    fn another_manager_of_the_field_is_named_and_one_of_other_fields_is_not() {
        let current = json!({"f:spec": {"f:current": {}}});
        let entries = [
            entry("kustomize-controller", &current),
            entry("nudge-cli", &current),
            entry("nudge-controller", &json!({"f:status": {"f:current": {}}})),
            entry("somebody", &json!({"f:spec": {"f:rollout": {}}})),
        ];
        assert_eq!(others(&entries), ["kustomize-controller"]);
        assert!(
            warning("shop", &entries).unwrap().contains("managed by \"kustomize-controller\", which may set it back")
        );
        assert_eq!(warning("shop", &entries[1..]), None);
    }
}
