//! Sources: what a `ConfigSource` does next about the content of its living object.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod debounce;
mod decide;
#[cfg(test)]
mod decide_tests;
mod holder;
mod key_patterns;
mod object;
mod observed;
mod period;
mod retention;
mod rival;
#[cfg(test)]
mod scene;
mod source_faults;
#[cfg(test)]
mod source_faults_tests;

pub use debounce::Newest;
pub use decide::{decide, held_by};
pub use holder::{FIELD_MANAGER, holder, release};
pub use key_patterns::selects;
pub use object::{missing, refusal, unpublishable, unreadable};
pub use observed::{Act, Decision, Observed, Upstream};
pub use period::{debounce, interval};
pub use rival::rival;
pub use source_faults::{git_wanted, oci_wanted, published, source_faults, vault_address};
