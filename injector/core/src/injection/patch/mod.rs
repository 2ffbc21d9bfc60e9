//! The patch of a pod, which adds the agent's container, volumes, and the patches of the pod's own containers.
//!
//! A pod that was injected before needs an empty patch; another injector may have changed it in between.

mod agent_container;
mod backup_exclusion;
mod birth_labels;
mod container_patch;
mod coverage;
mod injection_patch;
mod patch_builder;
mod volumes;
mod warnings;

pub(super) use agent_container::{AgentContainer, agent_container, port};
pub(super) use container_patch::ContainerPatch;
pub(super) use injection_patch::{InjectionPlan, injection_patch};
pub(super) use volumes::Volumes;
