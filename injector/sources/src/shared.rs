//! What all sources need.

use std::sync::Arc;

use kube::Client;
use ring::hmac;

/// What all sources need.
pub struct Sources {
    /// Asks the API server.
    pub client: Client,
    /// Names of versions with Secrets are keyed by it.
    pub content_key: Arc<hmac::Key>,
    /// The service account of this process, as kubectl takes it.
    pub account: String,
    /// How long one watch lasts, in seconds.
    pub watch_seconds: u32,
}
