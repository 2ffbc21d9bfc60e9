//! What injection adds to a pod, as a JSON patch: the agent's container, volumes, and the patches of the pod's own containers.
//!
//! A pod that was injected before needs an empty patch; another injector may have changed it in between.

mod agent_container;
mod apply;
mod birth_labels;
mod container_patch;
mod covers;
mod edit;
mod volumes;
mod warnings;

pub(super) use agent_container::{AgentContainer, agent_container, port};
pub(super) use apply::{Plan, apply};
pub(super) use container_patch::ContainerPatch;
pub(super) use volumes::Volumes;
