//! The ConfigMap and the Secret of a config's name: their content, the reasons why they are not written, changes by
//! others, and their status. [`PartKind`](nudge_api::PartKind) has the differences between the two.

mod outcome;
mod publication;
#[cfg(test)]
mod publication_tests;
mod publish_time;
mod published_object;

pub use outcome::{Attempt, PublishOutcome, apply_outcome, clear_publication};
pub(crate) use publication::{MAX_MANAGER_BYTES, has_data};
pub use publication::{ObjectUse, Publication, PublishGoal, decide_publication, object_to_write};
pub use publish_time::{WriteRecord, publish_time, text_time};
pub use published_object::{PublishedContent, PublishedObject, WipedSecret};
