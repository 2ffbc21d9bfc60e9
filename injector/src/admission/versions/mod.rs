//! Guards of ConfigMaps and Secrets that are versions: made whole, never changed, kept while they are needed.

mod activating;
mod delete;
mod immutable;
mod sealed;
mod shape;
mod update;

pub use activating::{becomes_current, not_permitted};
pub use delete::decide as delete;
pub use immutable::make_immutable;
pub use sealed::{Digests, decide as put_back, needed_digests};
pub use shape::{PartId, check as shape};
pub use update::decide as update;
