//! The injection of the agent into a pod that opts in: plain functions over the pod as JSON and a few facts, without
//! I/O.
//!
//! | question | folder |
//! |---|---|
//! | How does a pod opt in, and what may its annotations say? Which configs does it get? | `request` |
//! | Which containers get variables, which are notified, and by which user? | `targets` |
//! | How much CPU and memory does the agent get? | `resources` |
//! | What is added to the pod, and how is an injected pod injected again? | `patch` |
//!
//! The pod stays JSON throughout, so that fields of an API newer than this release are kept.

mod annotation_values;
mod facts;
mod inject;
mod mount_paths;
mod mountpoints;
mod moved_mounts;
mod patch;
mod preflight;
#[cfg(test)]
mod property_tests;
mod quantity;
mod refusal;
mod request;
mod resources;
mod settings;
mod stale_reads;
mod start_gate;
mod targets;
#[cfg(test)]
mod tests;
mod user_pod;
mod volume_objects;

pub use facts::{Features, InjectionFacts, MountedPart, ReferencedConfigMap, ResolvedConfig};
pub use inject::{Injection, inject};
pub use refusal::InjectionRefusal;
pub use request::{PodRequest, annotations, is_updated_by_rollout, opts_in, read};
pub(crate) use request::{UpdateWay, parse_way};
pub use settings::{AgentDefaults, InjectionSettings, UnknownKeys};
pub use volume_objects::{VolumeObject, objects as objects_of_volume};
