//! The audit log of the API server: the requests, with their users.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Returns every event so far whose text has `part`, in the order of answers. A line that is being written does not
/// count yet.
pub(super) fn read(file: &Path, part: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let event = |line: &str| serde_json::from_str(line).with_context(|| format!("no audit event: {line}"));
    // All that tests share is in one log: what others did need not be understood.
    whole.lines().filter(|line| line.contains(part)).map(event).collect()
}
