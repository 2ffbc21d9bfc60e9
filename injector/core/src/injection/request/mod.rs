//! What a pod asks for by its annotations: whether it opts in, which configs it gets, and what the agent shall do.

pub mod annotations;
mod configs;
mod notify;
mod opt_in;
mod pod_request;
mod references;
mod suggestion;
mod unknown;
mod webhook_url;

pub(super) use configs::{gate_warning, resolve};
pub use notify::by_rollout;
pub use opt_in::opts_in;
pub use pod_request::{PodRequest, read};
pub(super) use unknown::judged;
