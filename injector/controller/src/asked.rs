//! What was asked about a version on trial.

use std::sync::Arc;
use std::time::Instant;

use nudge_api::RolloutAnalysis;

/// What is known of the object of one config.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) object: Option<Arc<RolloutAnalysis>>,
    pub(super) read: Option<Instant>,
    pub(super) written: Option<Instant>,
    /// When it could not be written; absent since it could.
    pub(super) failed: Option<Instant>,
}
