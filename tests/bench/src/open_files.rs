//! Thousands of connections need as many open files, here and in the programs that are started.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What ten thousand agents with two connections each need, and some more.
const ENOUGH: u64 = 65_536;

/// Raises the limit of this process, and of those that it starts, as far as it may.
pub(crate) fn raise() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Only root may raise the upper one.
    if most < ENOUGH && setrlimit(Resource::RLIMIT_NOFILE, ENOUGH, ENOUGH).is_ok() {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("can't raise the limit of open files")
}
