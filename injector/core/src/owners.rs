//! The controller of an object, and the workload that a pod belongs to.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The text of [`OwnerKind::Job`].
const JOBS: &str = "Job";

/// Returns the owner whose controller writes the object.
pub fn controlling_owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// A kind of workload whose own rolling update replaces its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        })
    }
}

/// The kind of the owner of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// A workload whose own rolling update replaces its pods.
    Rolling(WorkloadKind),
    /// A Job. All Jobs of a namespace count as one workload: each run of a CronJob is a new Job, so a rollout could
    /// never be done with all of them. Their pods may end before anything is observed of them.
    Job,
    /// Another kind, such as ReplicaSet.
    Other,
}

/// The identity of the workload that a pod belongs to, such as `Deployment/web`; the status has it as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId {
    text: Box<str>,
    /// The kind, which the text begins with.
    kind: OwnerKind,
}

impl WorkloadId {
    /// Returns the identity of the workload with this kind and name.
    pub fn new(kind: impl fmt::Display, name: &str) -> Self {
        Self::from(&*format!("{kind}/{name}"))
    }

    /// Returns the identity of all Jobs of a namespace.
    pub fn jobs() -> Self {
        Self::from(JOBS)
    }

    /// Returns the workload that a pod belongs to; `None` if it has no owner. A ReplicaSet of a Deployment counts as
    /// the Deployment: its name ends with the template's hash, which the pod has as a label.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let owner = controlling_owner(meta)?;
        let hash = meta.labels.as_ref().and_then(|map| map.get("pod-template-hash"));
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
        Some(match deployment {
            Some(name) if owner.kind == "ReplicaSet" => Self::new(WorkloadKind::Deployment, name),
            _ if owner.kind == JOBS => Self::jobs(),
            _ => Self::new(&owner.kind, &owner.name),
        })
    }

    /// Returns the kind, which is `Job` for all Jobs together.
    pub fn kind(&self) -> OwnerKind {
        self.kind
    }

    /// Returns the name of the workload; empty for all Jobs.
    pub fn name(&self) -> &str {
        self.text.split_once('/').map_or("", |(_, name)| name)
    }

    /// Returns whether a rolling update of the workload replaces its pods.
    pub fn is_rolling(&self) -> bool {
        matches!(self.kind, OwnerKind::Rolling(_))
    }

    /// Returns the text that statuses have.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<&str> for WorkloadId {
    fn from(text: &str) -> Self {
        let kind = match text.split_once('/') {
            Some(("Deployment", _)) => OwnerKind::Rolling(WorkloadKind::Deployment),
            Some(("StatefulSet", _)) => OwnerKind::Rolling(WorkloadKind::StatefulSet),
            Some(("DaemonSet", _)) => OwnerKind::Rolling(WorkloadKind::DaemonSet),
            None if text == JOBS => OwnerKind::Job,
            _ => OwnerKind::Other,
        };
        Self { text: text.into(), kind }
    }
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_kind_and_the_name() {
        for kind in [WorkloadKind::Deployment, WorkloadKind::StatefulSet, WorkloadKind::DaemonSet] {
            let id = WorkloadId::new(kind, "web");
            assert_eq!((id.kind(), id.name(), id.as_str()), (OwnerKind::Rolling(kind), "web", &*format!("{kind}/web")));
        }
        assert_eq!((WorkloadId::jobs().kind(), WorkloadId::jobs().as_str()), (OwnerKind::Job, "Job"));
        assert_eq!(WorkloadId::new("CloneSet", "web").kind(), OwnerKind::Other);
    }
}
