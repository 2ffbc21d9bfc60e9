//! What keeps a version from going on although nothing is wrong with it, by the spec of its config, the policies of the cluster and what users
//! have decided.

use nudge_api::RolloutSpec;

use crate::rollout::{Now, Withheld};

/// Why the version that is requested may not go on, if it may not. What needs somebody to act comes first.
pub fn withheld(_spec: &RolloutSpec, _now: Now<'_>) -> Option<Withheld> {
    None
}
