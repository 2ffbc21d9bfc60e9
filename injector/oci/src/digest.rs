//! The digests that name content and check it.

use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

pub(crate) fn sha256(content: &[u8]) -> String {
    format!("sha256:{}", hex(digest(&SHA256, content).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_has_one_digest() {
        assert_eq!(sha256(b"{}"), "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }
}
