//! HTTP header names, in lower case as HTTP libraries require them.

/// The header that names the requesting container, so that `fetched` acknowledgements can be counted.
pub const CONTAINER: &str = "nudge-container";

/// The unique ID of one webhook event: every attempt to deliver it has the same one (Standard Webhooks).
pub const WEBHOOK_ID: &str = "webhook-id";
/// The time of this attempt in seconds since 1970 (Standard Webhooks).
pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
/// `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body` (Standard Webhooks).
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";
