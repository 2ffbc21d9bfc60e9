//! A digest of plain data, to see whether it has changed.

use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};
use serde::Serialize;

/// Returns the first 64 bits of the SHA-256 digest of the data as JSON, in hexadecimal.
pub(super) fn hash(data: &impl Serialize) -> String {
    let text = serde_json::to_vec(data).unwrap_or_default();
    hex(digest(&SHA256, &text).as_ref()[..8].as_ref())
}
