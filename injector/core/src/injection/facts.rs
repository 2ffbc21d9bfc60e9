//! The facts that injection needs besides the pod. The webhook gathers them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRangeItem;
use nudge_api::PartKind;
use nudge_protocol::ConfigName;

use crate::baseline::BaselineVerdict;

/// The features that the API server and every kubelet have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is one feature
pub struct Features {
    /// Whether there are init containers with `restartPolicy: Always` (1.29); without it, legacy mode.
    pub native_sidecars: bool,
    /// Whether there is `env.valueFrom.fileKeyRef` (1.35).
    pub env_files: bool,
    /// Whether there are `restartPolicyRules` with the action `RestartAllContainers` (1.36).
    pub restart_in_place: bool,
    /// Whether a pod's first address is an IPv6 address.
    pub ipv6: bool,
}

/// A part of a version that can be mounted for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedPart {
    /// The object's kind.
    pub kind: PartKind,
    /// The object's name.
    pub name: String,
    /// The number of the part, from 1.
    pub part: u32,
    /// The hex digits of the content's digest; `None` for a Secret, whose values they would help to guess.
    pub digest: Option<String>,
}

/// A config as it is at admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedConfig {
    /// The version that a new pod is assigned; `None` while there is no version.
    pub version: Option<String>,
    /// The parts of the version, numbered from 1. The list is empty if a part may not be mounted here (a Secret, unless
    /// the namespace's admin allows it), because the agent would take the other parts for the whole version.
    pub parts: Vec<MountedPart>,
    /// The number of keys in the version.
    pub keys: u32,
    /// The size of all values in bytes.
    pub bytes: u64,
    /// The kinds of the objects of the config's own name that belong to it.
    pub objects: Vec<PartKind>,
    /// Whether the hub may serve Secrets in the namespace.
    pub serves_secrets: bool,
    /// Whether the pod's service account is not among the config's allowed service accounts.
    pub closed: bool,
    /// Whether a step of its rollout has a selector.
    pub selects: bool,
}

impl ResolvedConfig {
    /// Returns whether the hub may serve keys of objects of this kind.
    pub(super) fn serves(&self, kind: PartKind) -> bool {
        self.serves_secrets || kind != PartKind::Secret
    }
}

/// The facts that injection needs besides the pod.
#[derive(Clone, Debug, Default)]
pub struct InjectionFacts {
    /// The features of the cluster.
    pub features: Features,
    /// The hub's CA bundle (PEM).
    pub hub_ca: String,
    /// The existing configs among those that the pod names or may mean.
    pub configs: BTreeMap<ConfigName, ResolvedConfig>,
    /// The existing ConfigMaps among those that the pod's containers reference, and whether they become configs.
    pub config_maps: BTreeMap<String, BaselineVerdict>,
    /// The existing Secrets among those that the pod's containers reference, if Nudge may make versions of them.
    pub secrets: BTreeMap<String, BaselineVerdict>,
    /// The limits of the pod's namespace.
    pub limits: Vec<LimitRangeItem>,
}

impl InjectionFacts {
    /// Returns whether the object of this kind and name becomes a config; `None` if it is not known to exist.
    pub(super) fn verdict(&self, kind: PartKind, name: &str) -> Option<BaselineVerdict> {
        match kind {
            PartKind::ConfigMap => self.config_maps.get(name).copied(),
            PartKind::Secret => self.secrets.get(name).copied(),
        }
    }
}
