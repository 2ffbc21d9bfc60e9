//! The long-running containers of a template, and whether a readiness probe shows that they are up.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};
use nudge_protocol::pod::AGENT_CONTAINER;

use crate::pods::references;

/// Returns the long-running containers, without the agent. Init containers that end are done before a pod can be up.
pub(super) fn long_running_containers(spec: &PodSpec) -> Vec<&Container> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    spec.containers.iter().chain(sidecars).filter(|container| container.name != AGENT_CONTAINER).collect()
}

/// Returns whether a container that reads one of these configs has no readiness probe. If no container is known to read
/// one, returns whether no container has a probe.
pub(super) fn is_unprobed(spec: &PodSpec, containers: &[&Container], configs: &BTreeSet<&String>) -> bool {
    let reads = |container: &&&Container| {
        let mounts = |volume: &Volume| container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name);
        let volumes = spec.volumes.iter().flatten().filter(|volume| mounts(volume)).cloned().collect();
        let pod_of_one =
            PodSpec { containers: vec![(**container).clone()], volumes: Some(volumes), ..PodSpec::default() };
        references(&pod_of_one).iter().any(|(_, name)| configs.contains(name))
    };
    let is_probed = |container: &Container| container.readiness_probe.is_some();
    let readers: Vec<_> = containers.iter().filter(reads).collect();
    if readers.is_empty() {
        return !containers.iter().any(|container| is_probed(container));
    }
    !readers.into_iter().all(|container| is_probed(container))
}
