//! What the agent exchanges with the hub and with the applications of its pod.

pub mod block;
pub mod error;
pub mod hub;
pub(crate) mod hub_ids;
pub mod notification;
pub mod status;
pub mod webhooks;
