//! What the injector knows of the cluster: kept by watches, read by the hub, the controllers and the admission.
//!
//! Everything in here follows what is opted in: enabled namespaces, `VersionedConfig`s, metadata of version objects and
//! of published ConfigMaps, and of injected pods the few fields that matter.

mod enabled;
mod follow;
mod keys;
mod parts;
mod pod;
mod probe;
mod pulse;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod watches;

pub use enabled::Enabled;
pub use follow::{Change, FollowError, follow};
pub use keys::{ConfigKey, Event, PartMeta, PodKey, PublishedMeta};
pub use pod::{ObjectVersion, PodState, by_restart, pod_state, references, workload};
pub use probe::{SlowestProbe, slowest_probe};
pub use pulse::Pulse;
pub use state::{PodEntry, World};
pub use watches::{WatchSettings, watch_cluster};
