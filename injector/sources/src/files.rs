//! Which files of a repository or an artifact a source takes.

use nudge_api::ConfigSourceSpec;
use nudge_authoring::file_key;
use nudge_core::sources::selects;

/// Returns whether a source takes the file of this path: its patterns are those of keys.
pub(crate) fn is_wanted(spec: &ConfigSourceSpec, path: &str) -> bool {
    selects(spec, &file_key(path))
}
