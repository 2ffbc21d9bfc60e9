//! CPU and memory of the agent's container: its defaults, the pod's QoS class, and the LimitRanges of the namespace.

mod agent_resources;
mod choose;
mod limit_range;
mod qos;

pub(super) use agent_resources::AgentResources;
pub(super) use choose::agent_resources;
#[cfg(test)]
pub(super) use qos::QosClass;
