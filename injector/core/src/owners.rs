//! The controller of an object, and the workload that a pod belongs to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The owner that controls the object: the one whose controller writes it.
pub fn controlling_owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Kind and name of the workload; all Jobs count as one. A ReplicaSet of a Deployment stands for it: its name is the Deployment's and the template's
/// hash, which the pod has as a label.
pub fn workload(meta: &ObjectMeta) -> String {
    let Some(owner) = controlling_owner(meta) else { return String::new() };
    let hash = meta.labels.as_ref().and_then(|map| map.get("pod-template-hash"));
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    match deployment {
        Some(name) if owner.kind == "ReplicaSet" => format!("Deployment/{name}"),
        // Each of a CronJob's would be a workload that nobody has seen before, and of which a rollout could never be done.
        _ if owner.kind == "Job" => "Job".to_owned(),
        _ => format!("{}/{}", owner.kind, owner.name),
    }
}
