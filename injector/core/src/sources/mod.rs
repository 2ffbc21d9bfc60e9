//! Sources: what a `ConfigSource` does next about the content of its living object.

mod decide;
#[cfg(test)]
mod decide_tests;
mod holder;
mod keys;
mod newest;
mod object;
mod period;
mod retention;
mod rival;

pub use decide::{Act, Decision, Observed, Upstream, decide, held_by};
pub use holder::{FIELD_MANAGER, holder, release};
pub use keys::selects;
pub use newest::Newest;
pub use object::{missing, refusal, unpublishable, unreadable};
pub use period::debounce;
pub use rival::rival;
