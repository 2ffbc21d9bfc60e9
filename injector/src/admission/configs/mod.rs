//! Guards of `VersionedConfig`s: who may choose the current version, and when one may go.

mod change;
mod delete;

pub use change::{chosen_version, name_and_version, not_complete, not_permitted};
pub use delete::decide as delete;
