//! What is known of the cluster: fixtures, and the tests by idea.

mod configs;
mod parts;
mod pods;

use nudge_protocol::ConfigName;

use super::*;
use crate::api::{PartKind, VersionedConfig};

pub(super) fn config(uid: &str, version: &str) -> VersionedConfig {
    let mut config = VersionedConfig::new("shop", crate::api::VersionedConfigSpec::default());
    config.metadata.namespace = Some("ns".to_owned());
    config.metadata.uid = Some(uid.to_owned());
    config.metadata.resource_version = Some(version.to_owned());
    config
}

/// A pod `web` of namespace `ns` that uses these configs.
pub(crate) fn pod(uid: &str, configs: &[&str]) -> PodState {
    PodState {
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
        uid: uid.to_owned(),
        configs: configs.iter().map(|name| ConfigName::new(name).unwrap()).collect(),
        ..PodState::default()
    }
}
