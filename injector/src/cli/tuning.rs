//! What the process asks of the operating system: enough files for its connections, and memory given back after storms.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to what is allowed.
pub(super) fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, "the limit of open files can't be raised");
    }
}
