//! Guards of ConfigMaps and Secrets that are versions: made whole, never changed, kept while they are needed. What they say of a new
//! part follows from the request alone: whoever reaches the webhook may pretend to be the API server.

mod delete;
mod immutable;
mod marking;
mod shape;
mod update;

pub use delete::decide as delete;
pub use immutable::make_immutable;
pub use marking::{keep_mark, not_by_itself, set_mark};
pub use shape::check as shape;
pub use update::decide as update;
