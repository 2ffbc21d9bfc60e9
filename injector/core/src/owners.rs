//! The controller of an object, and the workload that a pod belongs to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Returns the owner whose controller writes the object.
pub fn controlling_owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Returns the kind and name of the workload that a pod belongs to; `None` if it has no owner. All Jobs count as one
/// workload. A ReplicaSet of a Deployment counts as the Deployment: its name ends with the template's hash, which the
/// pod has as a label.
pub fn workload_id(meta: &ObjectMeta) -> Option<String> {
    let owner = controlling_owner(meta)?;
    let hash = meta.labels.as_ref().and_then(|map| map.get("pod-template-hash"));
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    Some(match deployment {
        Some(name) if owner.kind == "ReplicaSet" => format!("Deployment/{name}"),
        // Each Job of a CronJob would be a new workload, so a rollout could never be done with all of them.
        _ if owner.kind == "Job" => "Job".to_owned(),
        _ => format!("{}/{}", owner.kind, owner.name),
    })
}
