//! Bodies of replies: bytes that are shared, never copied, and that keep their connection marked as busy until sent.

use bytes::Bytes;
use http_body_util::Full;
use nudge_server::slots::RequestGuard;

/// The body of every reply.
pub type ReplyBody = Full<Bytes>;

/// Bytes with the guard of their request: hyper drops them when it has passed the last of them to TLS, not when it
/// takes the body.
struct GuardedBytes {
    bytes: Bytes,
    _guard: RequestGuard,
}

impl AsRef<[u8]> for GuardedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) fn reply_body(bytes: Bytes, guard: RequestGuard) -> ReplyBody {
    if bytes.is_empty() { Full::default() } else { Full::new(Bytes::from_owner(GuardedBytes { bytes, _guard: guard })) }
}
