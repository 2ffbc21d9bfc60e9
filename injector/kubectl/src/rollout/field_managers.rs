//! Other writers of a field that will set it back, such as a GitOps tool.
//!
//! A writer sets the field back if it keeps a state of its own to apply. Two signs show that: server-side apply
//! (`operation: Apply`), and the names of the tools that still update objects on the client side. `kubectl` and
//! programs for people write once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use crate::session::FIELD_MANAGER;

/// The beginnings of the managers of GitOps tools that write with `operation: Update`: Argo CD, Rancher Fleet, Flux,
/// Helm.
const TOOLS: [&str; 5] = ["argocd", "fleetagent", "flux", "helm", "kustomize-controller"];

/// The path of `spec.version`, as managed fields write it.
pub(crate) const VERSION: &[&str] = &["f:spec", "f:version"];
/// The path of the data of a ConfigMap or Secret.
pub(crate) const DATA: &[&str] = &["f:data"];

/// Returns the managers of the field at this path that will write it again.
fn other_managers<'a>(field: &[&str], entries: &'a [ManagedFieldsEntry]) -> Vec<&'a str> {
    let mut names: Vec<&str> = entries
        .iter()
        .filter(|entry| owns(entry, field))
        .filter_map(|entry| Some((entry.manager.as_deref()?, entry.operation.as_deref() == Some("Apply"))))
        .filter(|&(name, is_apply)| writes_again(name, is_apply))
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn owns(entry: &ManagedFieldsEntry, field: &[&str]) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    fields.and_then(|fields| field.iter().try_fold(fields, |fields, name| fields.get(*name))).is_some()
}

fn writes_again(name: &str, is_apply: bool) -> bool {
    // kubectl apply --server-side is "kubectl"; its other commands are "kubectl-create", "kubectl-client-side-apply"
    // and so on.
    let is_by_hand = name == FIELD_MANAGER || name == "kubectl" || name.starts_with("kubectl-");
    !is_by_hand && (is_apply || TOOLS.iter().any(|tool| name.starts_with(tool)))
}

/// Returns the warning before the field is changed, if somebody may set it back. `subject` names the field.
pub(crate) fn warning(subject: &str, field: &[&str], entries: &[ManagedFieldsEntry]) -> Option<String> {
    let others = other_managers(field, entries);
    let names = others.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" and ");
    (!others.is_empty()).then(|| {
        format!("{subject} is managed by {names}, which may set it back; change it in the source of that tool")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({"manager": manager, "operation": operation, "fieldsV1": fields})).unwrap()
    }

    fn version() -> Value {
        json!({"f:spec": {"f:version": {}}})
    }

    #[test]
    fn a_tool_that_writes_the_field_again_is_named() {
        for (manager, operation) in [
            ("kustomize-controller", "Apply"),
            ("argocd-controller", "Apply"),
            ("argocd-application-controller", "Update"),
            ("helm", "Update"),
            ("helm-controller", "Update"),
            ("Terraform", "Apply"),
            ("my-pipeline", "Apply"),
        ] {
            assert_eq!(other_managers(VERSION, &[entry(manager, operation, &version())]), [manager], "{operation}");
        }
    }

    #[test]
    fn kubectl_and_programs_for_people_are_not_named() {
        for (manager, operation) in [
            ("nudge-cli", "Update"),
            ("kubectl", "Apply"),
            ("kubectl-client-side-apply", "Update"),
            ("kubectl-create", "Update"),
            ("kubectl-edit", "Update"),
            ("kubectl-patch", "Update"),
            ("kubectl-replace", "Update"),
            ("kubectl-last-applied", "Apply"),
            ("k9s", "Update"),
            ("node-fetch", "Update"),
            ("unknown", "Update"),
        ] {
            assert_eq!(warning("x", VERSION, &[entry(manager, operation, &version())]), None, "{manager} {operation}");
        }
    }

    #[test]
    fn a_manager_of_other_fields_is_not_named() {
        let entries = [
            entry("kustomize-controller", "Apply", &json!({"f:spec": {"f:rollout": {}}})),
            entry("nudge-controller", "Apply", &json!({"f:status": {"f:currentVersion": {}}})),
        ];
        assert_eq!(warning("x", VERSION, &entries), None);
        let data = [entry("helm", "Update", &json!({"f:data": {"f:lives": {}}}))];
        assert!(warning("x", DATA, &data).is_some() && warning("x", VERSION, &data).is_none());
        let both = [entry("argocd-controller", "Update", &version()), entry("helm", "Update", &version())];
        let warning = warning("spec.version of config shop", VERSION, &both).unwrap();
        assert!(warning.contains("managed by \"argocd-controller\" and \"helm\", which may set it back"), "{warning}");
    }
}
