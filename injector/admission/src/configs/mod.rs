//! Rules for `VersionedConfig`s: who may decide what the published ConfigMap holds, and when a config may be deleted.

mod authority;
mod change;
mod delete;

pub use authority::{needs, not_permitted};
pub use change::{chosen_version, name_and_version, not_complete};
pub use delete::decide as delete;
