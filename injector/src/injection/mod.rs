//! Injection: what becomes of a pod that opts in. Plain functions over the pod as JSON and a few facts; no I/O.
//!
//! The pod stays JSON throughout, so that fields of a newer API than this release knows are kept.

mod facts;
mod settings;

pub use facts::{Facts, Features, MountedPart, PlainMap, ResolvedConfig};
pub use settings::InjectionSettings;
