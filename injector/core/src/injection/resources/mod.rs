//! CPU and memory of the agent's container: its defaults, the pod's QoS class, and the LimitRanges of the namespace.

mod agent_resources;
mod limit_range;
mod qos;
mod quantity;

pub(super) use agent_resources::{AgentResources, MIN_MEMORY, agent_resources};
#[cfg(test)]
pub(super) use qos::QosClass;
pub(super) use quantity::Quantity;
