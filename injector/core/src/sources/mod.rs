//! The decision about a `ConfigSource`: its next act on the content of its place.
// This module computes with numbers from outside, so nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod debounced_version;
mod decide;
#[cfg(test)]
mod decide_tests;
mod key_patterns;
mod older_rival;
mod periods;
mod retention;
mod source_faults;
#[cfg(test)]
mod source_faults_tests;
mod source_snapshot;
#[cfg(test)]
mod test_scene;
mod unpublishable;
mod version_manager;

pub use debounced_version::DebouncedVersion;
pub use decide::{decide, explain_conflict};
pub use key_patterns::selects_key;
pub use older_rival::older_rival;
pub use periods::{debounce, poll_period};
pub use source_faults::{git_target, oci_target, source_faults, vault_address};
pub use source_snapshot::{Act, SourceDecision, SourceSnapshot, Upstream};
pub use unpublishable::explain_unpublishable;
pub use version_manager::{FIELD_MANAGER, release_version_field, version_manager};
