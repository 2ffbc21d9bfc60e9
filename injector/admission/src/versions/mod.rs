//! Rules for ConfigMaps and Secrets that are parts of versions: valid when created, never changed, kept while needed. The verdict about a
//! new part follows from the request alone, because any client that reaches the webhook may pretend to be the API server.

mod delete;
mod immutable;
mod marking;
mod shape;
mod update;

pub use delete::decide as delete;
pub use immutable::make_immutable;
pub use marking::{keep_notes, not_by_itself, set_notes};
pub use shape::check as shape;
pub use update::decide as update;
