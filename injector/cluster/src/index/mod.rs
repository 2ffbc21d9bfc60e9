//! The injector's knowledge of the cluster: watches keep it up to date; the hub, the controllers and admission read it.
//!
//! The index holds the enabled namespaces. Of each it keeps the `VersionedConfig`s, the metadata of published
//! ConfigMaps and of the objects of versions, the few fields of injected pods that matter, and the uids of service
//! accounts. It keeps nothing of other namespaces. The number of objects of each namespace is bounded.

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

pub(crate) use configs::StateOrigin;
pub use configs::VisibleParts;
pub use freshness::WatchAge;
pub use index_event::IndexEvent;
pub(crate) use known_policies::ReadFault;
pub use list_outcomes::{NamespaceCounts, WatchScope};
pub use namespace_state::Labels;
pub use namespaces::Index;
pub use pod_entry::PodEntry;
pub use watched_kind::WatchedKind;
