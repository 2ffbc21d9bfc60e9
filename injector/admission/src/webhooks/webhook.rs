//! A webhook, which decides about the reviews of one path of the admission server.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;

use crate::lookups::LookupError;
use crate::review::{ReviewError, ReviewRequest};
use crate::verdict::{AdmissionVerdict, UndecidedDeletions};

/// The reason why a request gets no verdict.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The request itself can't be used: status 400.
    #[error(transparent)]
    Review(#[from] ReviewError),
    /// A look-up failed: status 500, and the failure policy decides.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Any other fault of Nudge: status 500.
    #[error(transparent)]
    Internal(Box<dyn Error + Send + Sync>),
}

/// A webhook: it decides about the reviews of one path. It has no effect beyond its answer, so a dry run is like any
/// other request.
#[async_trait]
pub trait Webhook: Send + Sync + 'static {
    /// Returns the path, such as `/validate/versions`; also its name in metrics and logs.
    fn path(&self) -> &'static str;

    /// Returns whether an undecided deletion is allowed or refused.
    fn undecided_deletions(&self) -> UndecidedDeletions {
        UndecidedDeletions::FailurePolicy
    }

    /// Decides about a request.
    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError>;
}

/// The webhooks of a server.
pub type Webhooks = Vec<Arc<dyn Webhook>>;
