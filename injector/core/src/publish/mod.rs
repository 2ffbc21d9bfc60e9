//! The published ConfigMap and the published Secret: what each should hold, why it can't, whether somebody else has changed it, and what
//! the status says of that. Both are one table; [`PublishedKind`] has the differences.

mod compare;
#[cfg(test)]
mod compare_tests;
mod kind;
mod object;
mod outcome;
mod time;

pub use compare::{Publication, PublishGoal, publication, to_write};
pub use kind::PublishedKind;
pub use object::{PublishedContent, PublishedObject};
pub use outcome::{Attempt, Outcome, unpublished, with_outcome};
pub use time::{Holder, publish_time};
