//! HTTP header names, in lower case as HTTP libraries require them.

/// Names the container on whose behalf a request is made, so that `fetched` acknowledgements can be counted.
pub const CONTAINER: &str = "nudge-container";

/// Unique id of one webhook event; the same for every attempt to deliver it (Standard Webhooks).
pub const WEBHOOK_ID: &str = "webhook-id";
/// Seconds since 1970 of this attempt (Standard Webhooks).
pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
/// `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body` (Standard Webhooks).
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";
