//! Injection: what becomes of a pod that opts in. Plain functions over the pod as JSON and a few facts; no I/O.
//!
//! The pod stays JSON throughout, so that fields of a newer API than this release knows are kept.

pub mod annotations;
mod candidates;
mod facts;
mod nearest;
mod quantity;
mod refusal;
mod settings;
mod url;
mod user_pod;
mod values;
mod wanted;

use serde_json::Value;

pub use facts::{Facts, Features, MountedPart, PlainMap, ResolvedConfig};
pub use refusal::Refusal;
pub use settings::InjectionSettings;
pub use wanted::{Wanted, read};

/// What becomes of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Injection {
    /// What to change; empty where all is there.
    pub patch: json_patch::Patch,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

/// Puts the agent into a pod that asks for it.
pub fn inject(pod: &Value, wanted: &Wanted, facts: &Facts, settings: &InjectionSettings) -> Result<Injection, Refusal> {
    let user = user_pod::UserPod::of(pod)?;
    let (_, warnings) = candidates::resolve(&user, wanted, facts, &settings.foreign_containers)?;
    Ok(Injection { warnings, ..Injection::default() })
}
