//! The names of remote content: repositories of git and of OCI registries, and the content that is pulled from them.
//! Each text is parsed once, so a value of these types can always be requested.

mod artifact_pick;
mod git_revision;
mod git_url;
mod oci_reference;
mod repository_path;

pub use artifact_pick::{Pick, PickError, is_digest, is_tag, parse_range};
pub use git_revision::{Revision, RevisionError, is_object_id, is_ref};
pub use git_url::{GitUrl, GitUrlError};
pub use oci_reference::{ArtifactLocation, OciReference, ReferenceError};
pub use repository_path::{PathError, check_path};
