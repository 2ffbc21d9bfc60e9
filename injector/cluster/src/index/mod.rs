//! What the injector knows of the cluster: kept by watches, read by the hub, the controllers and admission.
//!
//! It holds the enabled namespaces, the `VersionedConfig`s, metadata of the objects of versions and of published ConfigMaps, and the few
//! fields that matter of injected pods.

mod confirmed;
mod event;
mod parts;
mod pods;
mod state;
#[cfg(test)]
pub(crate) mod tests;

pub use event::IndexEvent;
pub use pods::PodEntry;
pub use state::Index;
