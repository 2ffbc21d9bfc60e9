//! The injection of the agent into a pod that opts in: plain functions over the pod as JSON and a few facts, without
//! I/O.
//!
//! | question | folder |
//! |---|---|
//! | How does a pod opt in, and what may its annotations say? Which configs does it get? | `request` |
//! | Which containers get variables, which are notified, and by which user? | `targets` |
//! | How does each container take a version of each config? | `uptake` |
//! | How much CPU and memory does the agent get? | `resources` |
//! | What is added to the pod, and how is an injected pod injected again? | `patch` |
//!
//! The pod stays JSON throughout, so that fields of an API newer than this release are kept.

mod annotation_values;
mod facts;
mod inject;
mod mount_paths;
mod mounted_part;
mod mountpoints;
mod moved_mounts;
mod named_objects;
mod patch;
mod preflight;
#[cfg(test)]
mod property_tests;
mod quantity;
mod refusal;
mod request;
mod resources;
mod settings;
mod start_gate;
mod targets;
#[cfg(test)]
mod tests;
mod uptake;
mod uptake_warnings;
mod user_pod;

pub use facts::{Features, InjectionFacts, MountedPart, ResolvedConfig};
pub use inject::{Injection, inject};
pub use mounted_part::is_part;
pub use named_objects::{NamedObject, container_objects, variable_objects, volume_objects};
pub use refusal::InjectionRefusal;
pub use request::{PodRequest, UpdateWay, annotations, is_updated_by_rollout, opts_in, read, stated_keys, stated_way};
pub use settings::{AgentDefaults, InjectionSettings, UnknownKeys};
pub use uptake::{ContainerReads, ContainerUptake, PodReads, ReadPath, RestartCause, Uptake};
