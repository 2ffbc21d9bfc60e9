//! CPU and memory of the agent's container: its defaults, the pod's QoS class, and the LimitRanges of the namespace.

mod agent_resources;
mod choose;
mod files_room;
mod limit_range;
mod qos;

pub(super) use agent_resources::AgentResources;
pub(super) use choose::agent_resources;
pub(super) use files_room::files_room;
#[cfg(test)]
pub(super) use qos::QosClass;
