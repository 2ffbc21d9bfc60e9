//! What the status records of rollouts: the releases, and the version that failed last.

mod failed_version;
mod release;
mod same_content;

pub(super) use failed_version::still_applies;
pub use release::{
    MAX_RELEASES_BYTES, RolloutChange, fit_releases, new_releases, newly_ended_releases, record_release,
    release_summary,
};
pub use same_content::is_same_content;
