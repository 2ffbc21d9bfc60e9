//! The long-running containers of a template, and whether a readiness probe shows that they are up.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use nudge_protocol::pod::AGENT_CONTAINER;

use crate::injection::container_objects;

/// Returns the long-running containers, without the agent. Init containers that end are done before a pod can be up.
pub(super) fn long_running_containers(spec: &PodSpec) -> Vec<&Container> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    spec.containers.iter().chain(sidecars).filter(|container| container.name != AGENT_CONTAINER).collect()
}

/// Returns whether a container that reads one of these configs has no readiness probe. If no container is known to read
/// one, returns whether no container has a probe.
pub(super) fn is_unprobed(spec: &PodSpec, containers: &[&Container], configs: &BTreeSet<&String>) -> bool {
    let is_config = |name: &str| configs.iter().any(|config| *config == name);
    let reads = |container: &&&Container| container_objects(spec, container).any(|object| is_config(object.name));
    let is_probed = |container: &Container| container.readiness_probe.is_some();
    let readers: Vec<_> = containers.iter().filter(reads).collect();
    if readers.is_empty() {
        return !containers.iter().any(|container| is_probed(container));
    }
    !readers.into_iter().all(|container| is_probed(container))
}
