//! The policies of the cluster that a namespace is under.

use std::sync::Arc;

use nudge_api::RolloutPolicy;

/// How many policies a cluster can have.
pub const MOST_POLICIES: usize = 64;

/// What is known of the policies of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Policies {
    /// These.
    Known(Vec<Arc<RolloutPolicy>>),
    /// They can't be known: why, and what to do.
    Unknown(String),
}

impl Default for Policies {
    fn default() -> Self {
        Self::Known(Vec::new())
    }
}
