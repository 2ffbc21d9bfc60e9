//! Bounds of this crate's own requests.

use std::time::Duration;

use nudge_outbound::Bounds;

/// Bounds of an answer that holds no file content.
pub(crate) const BOUNDS: Bounds = Bounds { timeout: Duration::from_secs(30), max_bytes: 4 * 1024 * 1024 };
