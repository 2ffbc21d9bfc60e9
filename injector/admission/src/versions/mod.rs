//! Rules for ConfigMaps and Secrets that are parts of versions: valid when created, never changed, kept while needed.
//! The verdict about a new part follows from the request alone, because any client that reaches the webhook may pretend
//! to be the API server.

mod deletion;
mod immutable;
mod part_notes;
mod part_shape;
mod update;

pub(crate) use deletion::{check_deletion, deny_in_use, is_kept};
pub(crate) use immutable::make_immutable;
pub(crate) use part_notes::{keep_notes, unmarked_part};
pub(crate) use part_shape::check_shape;
pub(crate) use update::check_update;
