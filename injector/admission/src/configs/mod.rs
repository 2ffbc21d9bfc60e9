//! Rules for `VersionedConfig`s: who may decide what the published ConfigMap holds and which versions are deleted, who may weaken guards, and
//! when a config may be deleted; and who asked for a version.

mod analysis;
mod authority;
mod change;
mod deletion;
mod guards;
mod importing;
mod requester_notes;
mod waiting;

pub(crate) use analysis::{may_not_send, new_analyses, secrets};
pub(crate) use authority::{deletes, hands_over, kinds, may_not_delete, needs, not_permitted, published};
pub(crate) use change::{at_once, chosen_version, not_complete};
pub(crate) use deletion::decide as delete;
pub(crate) use guards::{Weakening, deletes_guards, mark_guarded, weakening};
pub(crate) use importing::{imports, may_not_import};
pub(crate) use requester_notes::note_requester;
pub(crate) use waiting::waits;
