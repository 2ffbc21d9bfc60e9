//! Digests: what content is named by, and checked by.

use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

/// The digest of this content.
pub(crate) fn of(content: &[u8]) -> String {
    format!("sha256:{}", hex(digest(&SHA256, content).as_ref()))
}

/// Whether the text is a digest of SHA-256, the only kind that registries use in practice.
pub(crate) fn is_digest(text: &str) -> bool {
    let of_digest = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(of_digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_form() {
        let empty = of(b"{}");
        assert_eq!(empty, "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        assert!(is_digest(&empty));
        for bad in
            ["", "sha256:", "sha256:44", &empty.to_uppercase(), &empty.replace("256", "512"), &format!("{empty}0")]
        {
            assert!(!is_digest(bad), "{bad}");
        }
    }
}
