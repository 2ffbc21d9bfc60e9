//! Stand-ins for what the agent and the control plane talk to.

pub mod balancer;
pub mod crowd;
pub mod fake_hub;
pub mod hook_server;
pub mod hub_tls;
pub mod standard_webhooks;
