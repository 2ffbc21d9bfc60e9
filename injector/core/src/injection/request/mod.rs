//! What a pod asks for by its annotations: whether it opts in, which configs it gets, and what the agent shall do.

pub mod annotations;
mod configs;
mod notify;
mod opt_in;
pub(super) mod paths;
mod pod_request;
mod references;
mod suggestion;
mod unknown;
pub(super) mod values;
mod webhook_url;

pub(super) use configs::resolve;
pub use notify::by_rollout;
pub use opt_in::opts_in;
pub use pod_request::{PodRequest, read};
pub(super) use unknown::judged;
