//! Bodies of replies: bytes that are shared, never copied, and that keep their connection marked as busy until sent.

use bytes::Bytes;
use http_body_util::Full;
use nudge_server::slots::RequestGuard;

/// The body of every reply.
pub type ReplyBody = Full<Bytes>;

/// Bytes with the mark: hyper drops them when it has passed the last of them to TLS, not when it takes the body.
struct Sent {
    bytes: Bytes,
    _busy: RequestGuard,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) fn reply_body(bytes: Bytes, busy: RequestGuard) -> ReplyBody {
    if bytes.is_empty() { Full::default() } else { Full::new(Bytes::from_owner(Sent { bytes, _busy: busy })) }
}
