//! Injection: what becomes of a pod that opts in. Plain functions over the pod as JSON and a few facts; no I/O.
//!
//! The pod stays JSON throughout, so that fields of a newer API than this release knows are kept.

mod agent;
pub mod annotations;
mod apply;
mod candidates;
mod chosen;
mod covers;
mod edit;
mod equipment;
mod facts;
mod inject;
mod limits;
mod nearest;
mod obstacles;
#[cfg(test)]
mod properties;
mod quality;
mod quantity;
mod refusal;
mod remarks;
mod resources;
mod runner;
mod settings;
#[cfg(test)]
mod tests;
mod url;
mod user_pod;
mod values;
mod volumes;
mod wanted;

pub use facts::{Facts, Features, MountedPart, PlainMap, ResolvedConfig};
pub use inject::{Injection, inject};
pub use refusal::Refusal;
pub use settings::InjectionSettings;
pub use wanted::{Wanted, read};
