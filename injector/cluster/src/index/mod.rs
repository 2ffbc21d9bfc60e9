//! What the injector knows of the cluster: kept by watches, read by the hub, the controllers and the admission.
//!
//! Everything in here follows what is opted in: enabled namespaces, `VersionedConfig`s, metadata of version objects and
//! of published ConfigMaps, and of injected pods the few fields that matter.

mod event;
mod parts;
mod state;
#[cfg(test)]
pub(crate) mod tests;

pub use event::IndexEvent;
pub use state::{Index, PodEntry};
