//! CPU and memory of the agent's container: its defaults, the pod's QoS class, and the LimitRanges of the namespace.

mod agent_resources;
mod files_room;
mod limit_range;
mod qos;
mod requests_and_limits;

pub(super) use agent_resources::agent_resources;
pub(super) use files_room::{MIN_FILES_ROOM, files_room, room_of};
#[cfg(test)]
pub(super) use qos::QosClass;
pub(super) use requests_and_limits::AgentResources;
