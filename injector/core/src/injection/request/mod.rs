//! The requests in a pod's annotations: whether the pod opts in, which configs it gets, and how the agent serves it.

pub mod annotations;
mod opt_in;
mod pod_configs;
mod pod_request;
mod references;
mod suggestion;
mod unknown;
mod update_way;
mod webhook_url;

pub use opt_in::opts_in;
pub(super) use pod_configs::{gate_warning, resolve_configs};
pub use pod_request::{PodRequest, read};
pub(super) use unknown::check_unknown_keys;
pub(super) use update_way::stated_expectation;
pub use update_way::{UpdateWay, is_updated_by_rollout, stated_keys, stated_way};
