//! What the injector knows of the cluster: kept by watches, read by the hub, the controllers and admission.
//!
//! It holds the enabled namespaces and, of each, the `VersionedConfig`s, metadata of the objects of versions and of published ConfigMaps, and
//! the few fields that matter of injected pods, and the uids of service accounts. It holds nothing of other namespaces, and a bounded number
//! of objects of each.

mod accounts;
mod approvals;
mod confirmed;
mod event;
mod kind;
mod known_policies;
mod listed;
mod parts;
mod pod_entry;
mod pods;
mod policies;
mod space;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod unkept;

pub use event::IndexEvent;
pub use kind::Kind;
pub(crate) use known_policies::ReadFault;
pub use listed::{Namespaces, Scope};
pub use pod_entry::PodEntry;
pub use space::Labels;
pub use state::Index;
