//! Injection: what becomes of a pod that opts in. Plain functions over the pod as JSON and a few facts; no I/O.
//!
//! The pod stays JSON throughout, so that fields of a newer API than this release knows are kept.

mod agent;
pub mod annotations;
mod apply;
mod candidates;
mod container_patch;
mod covers;
mod edit;
mod facts;
mod inject;
mod limits;
mod nearest;
mod pod_request;
mod preflight;
#[cfg(test)]
mod properties;
mod qos;
mod quantity;
mod refusal;
mod remarks;
mod resources;
mod run_as_user;
mod settings;
mod targets;
#[cfg(test)]
mod tests;
mod url;
mod user_pod;
mod values;
mod volumes;

pub use facts::{Facts, Features, MountedPart, PlainMap, ResolvedConfig};
pub use inject::{Injection, inject};
pub use pod_request::{PodRequest, read};
pub use refusal::Refusal;
pub use settings::InjectionSettings;
