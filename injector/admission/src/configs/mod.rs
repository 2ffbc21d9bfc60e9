//! Rules for `VersionedConfig`s: who may decide what the published ConfigMap holds and which versions are deleted, who may weaken guards, and
//! when a config may be deleted; and who asked for a version.

mod analysis;
mod authority;
mod change;
mod delete;
mod guarded;
mod importing;
mod requester;
mod waits;

pub use analysis::{may_not_send, new_analyses, secrets};
pub use authority::{deletes, hands_over, kinds, may_not_delete, needs, not_permitted, published};
pub use change::{at_once, chosen_version, not_complete};
pub use delete::decide as delete;
pub use guarded::{Weakening, deletes_guards, mark_guarded, weakening};
pub use importing::{imports, may_not_import};
pub use requester::note_requester;
pub use waits::waits;
