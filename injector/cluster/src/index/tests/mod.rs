//! The index: fixtures, and the tests by idea.

mod accounts;
mod approvals;
mod bounds;
mod configs;
mod namespaces;
mod parts;
mod pods;
mod policies;

use nudge_api::{PartKind, VersionedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey, PartMeta, PodKey, PodUid};
use nudge_core::pods::PodState;
use nudge_protocol::ConfigName;

use super::*;
use crate::watch_health::WatchHealth;

/// Returns an index with the namespace `ns`.
pub(super) fn enabled() -> Index {
    let index = Index::default();
    index.set_enabled(["ns".to_owned()].into());
    index
}

/// Returns when the namespace was enabled.
pub(super) fn since(index: &Index, namespace: &str) -> Option<std::time::Instant> {
    index.enabled_since(&WatchScope::Namespace(namespace.to_owned()))
}

pub(super) fn config(uid: &str, version: &str) -> VersionedConfig {
    let mut config = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
    config.metadata.namespace = Some("ns".to_owned());
    config.metadata.uid = Some(uid.to_owned());
    config.metadata.resource_version = Some(version.to_owned());
    config
}

/// Returns a config of namespace `ns`.
pub(super) fn config_key(name: &str) -> ConfigKey {
    ConfigKey::parse("ns", name).unwrap()
}

/// Returns a pod `web` of namespace `ns` that uses these configs.
pub(crate) fn pod(uid: &str, configs: &[&str]) -> PodState {
    PodState {
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
        uid: PodUid::new(uid).unwrap(),
        configs: configs.iter().map(|name| ConfigName::new(name).unwrap()).collect(),
        ..PodState::default()
    }
}
