//! What of which server is asked for, by its name alone: repositories of git and of OCI registries. A text is read once, and what can't be asked for
//! is no value of these types.

mod git_url;
mod path;
mod pick;
mod reference;
mod revision;

pub use git_url::{GitUrl, GitUrlError};
pub use path::{PathError, check_path};
pub use pick::{Pick, PickError, is_digest, is_tag, range_of};
pub use reference::{Located, Reference, ReferenceError};
pub use revision::{Revision, RevisionError, is_id, is_ref};
