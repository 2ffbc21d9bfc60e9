//! `kubectl nudge` as users run it, against a real API server with the control plane.

mod completion;
mod namespaces;
mod rights;
pub(crate) mod scene;
mod terminal;
mod versions;
mod waiting;
