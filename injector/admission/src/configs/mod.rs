//! Guards of `VersionedConfig`s: who may decide what the plain ConfigMap holds, and when a config may go.

mod authority;
mod change;
mod delete;

pub use authority::{needs, not_permitted};
pub use change::{chosen_version, name_and_version, not_complete};
pub use delete::decide as delete;
