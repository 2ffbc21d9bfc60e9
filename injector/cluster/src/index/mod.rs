//! The index of what the injector knows of the cluster: kept by watches, read by the hub, the controllers and
//! admission.
//!
//! It holds the enabled namespaces and, of each, the `VersionedConfig`s, metadata of the objects of versions and of
//! published ConfigMaps, the few fields that matter of injected pods, and the uids of service accounts. It holds
//! nothing of other namespaces, and a bounded number of objects of each.

mod accounts;
mod approvals;
mod configs;
mod freshness;
mod index_event;
mod known_policies;
mod left_out;
mod list_outcomes;
mod namespace_state;
mod namespaces;
mod parts;
mod pod_entry;
mod pods;
mod policies;
#[cfg(test)]
pub(crate) mod tests;
mod watched_kind;

pub use configs::VisibleParts;
pub use freshness::WatchAge;
pub use index_event::IndexEvent;
pub(crate) use known_policies::ReadFault;
pub use list_outcomes::{NamespaceCounts, Scope};
pub use namespace_state::Labels;
pub use namespaces::Index;
pub use pod_entry::PodEntry;
pub use watched_kind::WatchedKind;
