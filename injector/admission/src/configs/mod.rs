//! Rules for `VersionedConfig`s: who may decide about the published content and the deletion of versions, who may
//! weaken guards, and when a config may be deleted. Also notes who requested a version.

mod changes;
mod deletion;
mod guard_rights;
mod needed_rights;
mod requester_notes;
mod warnings;

pub(crate) use changes::{
    chooses_version, content_change, deleting_change, import_change, new_analyses, new_override, setter_change,
};
pub(crate) use deletion::{check_deletion, return_warning};
pub(crate) use guard_rights::{mark_guarded, removed_guards, weakening};
pub(crate) use needed_rights::{credential_rights, deletion_rights, import_right, part_kinds, publishing_rights};
pub(crate) use requester_notes::note_requester;
pub(crate) use warnings::{incomplete_version, waiting_version};
