//! Nudge's control plane: seals versions, guards them, moves pods to them, and serves them to the agents.

pub mod admission;
pub mod api;
pub mod causes;
pub mod certs;
pub mod cli;
pub mod controller;
pub mod features;
pub mod hub;
pub mod injection;
mod jitter;
mod kubeconfig;
pub mod kubectl;
pub mod recycling;
pub mod rollout;
mod shares;
mod slots;
mod text;
pub mod tls;
pub mod versions;
pub mod world;
