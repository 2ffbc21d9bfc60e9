//! What must be known beyond the pod: gathered by the webhook, plain data here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRangeItem;
use nudge_api::PartKind;
use nudge_protocol::ConfigName;

/// What the API server and every kubelet can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Init containers with `restartPolicy: Always` (1.29); without it, legacy mode.
    pub native_sidecars: bool,
    /// `env.valueFrom.fileKeyRef` (1.35).
    pub env_files: bool,
    /// Pods' first address is one of IPv6.
    pub ipv6: bool,
}

/// A ConfigMap that a pod's containers name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainMap {
    /// It has an owner.
    pub owned: bool,
    /// It is immutable.
    pub immutable: bool,
    /// It has labels of a version.
    pub version: bool,
}

/// One object of a version that the agent can have mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedPart {
    /// Its kind.
    pub kind: PartKind,
    /// Its name.
    pub name: String,
    /// The number of the part, from 1.
    pub part: u32,
}

/// A config as it stands at admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedConfig {
    /// The version that the pod would be assigned; absent where there is none yet.
    pub version: Option<String>,
    /// All of its parts, numbered from 1. Empty where one of them may not be mounted here (Secrets, unless the namespace's admin has
    /// allowed them): the agent would take the others for the whole version.
    pub parts: Vec<MountedPart>,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the cluster can do.
    pub features: Features,
    /// The hub's CA bundle (PEM).
    pub hub_ca: String,
    /// The configs that are there, of those that the pod names or could mean.
    pub configs: BTreeMap<ConfigName, ResolvedConfig>,
    /// The plain ConfigMaps that are there, of those that the pod's containers name.
    pub maps: BTreeMap<String, PlainMap>,
    /// Limits of the pod's namespace.
    pub limits: Vec<LimitRangeItem>,
}
