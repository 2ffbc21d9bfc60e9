//! Stand-ins for the peers of the agent and the control plane.

mod assigned;
pub mod balancer;
pub mod crowd;
pub mod fake_hub;
pub mod hook_server;
pub mod hub_tls;
mod interruptible;
pub mod standard_webhooks;
