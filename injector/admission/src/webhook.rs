//! What answers under one path of the admission server.

use std::error::Error;

use futures::future::BoxFuture;

use super::lookups::LookupError;
use super::review::{Request, ReviewError};
use super::verdict::Verdict;

/// Why a request got no verdict.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The request itself can't be used: status 400.
    #[error(transparent)]
    Review(#[from] ReviewError),
    /// Something that the guard must know could not be found out: status 500, and the failure policy decides.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Any other fault of ours: status 500.
    #[error(transparent)]
    Internal(Box<dyn Error + Send + Sync>),
}

/// Answers the reviews that come to one path. It must have no effect beyond its answer, so that a dry run needs no care.
pub trait Webhook: Send + Sync + 'static {
    /// The path, such as `/validate/versions`; also its name in metrics and logs.
    fn path(&self) -> &'static str;

    /// Decides about a request.
    fn review<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, WebhookError>>;
}
