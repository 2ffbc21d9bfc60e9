//! Bounds of the HTTP requests that this crate itself sends.

use std::time::Duration;

use nudge_outbound::Bounds;

/// The bounds of an answer that holds no file content.
pub(crate) const BOUNDS: Bounds = Bounds { timeout: Duration::from_secs(30), max_bytes: 4 * 1024 * 1024 };
