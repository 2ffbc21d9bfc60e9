//! The keys that are derived from the root key of an installation, by HKDF (RFC 5869). A role has only the keys that it
//! needs: an attacker who takes over the hub or the sources can't sign notes of admission.

use ring::hmac;
use zeroize::Zeroizing;

/// The random entry of the Secret. All other keys are derived from it. Backups need only this entry.
pub const ROOT: &str = "key";
/// The entry with the bytes of the [`ContentKey`].
pub const CONTENT: &str = "content";
/// The entry with the bytes of the [`NoteKey`].
pub const NOTES: &str = "notes";
/// The size of each key.
pub const KEY_BYTES: usize = 32;

/// The key of digests and seals, and thereby of the names of sources' versions.
#[derive(Clone, Debug)]
pub struct ContentKey(pub(crate) hmac::Key);

/// The key of the notes of admission.
#[derive(Clone, Debug)]
pub struct NoteKey(pub(crate) hmac::Key);

/// The keys of the controllers.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The key of digests and seals.
    pub content: ContentKey,
    /// The key of notes.
    pub note: NoteKey,
}

impl ContentKey {
    /// Takes the bytes of the entry [`CONTENT`].
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }
}

impl NoteKey {
    /// Takes the bytes of the entry [`NOTES`].
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }
}

impl Keys {
    /// Derives both keys.
    pub fn of_root(root: &[u8]) -> Self {
        Self { content: ContentKey::new(&derive(root, CONTENT)), note: NoteKey::new(&derive(root, NOTES)) }
    }
}

/// Returns the entries of the Secret: the root, and the keys that are derived from it.
pub fn entries(root: &[u8]) -> [(&'static str, Zeroizing<Vec<u8>>); 3] {
    [(ROOT, Zeroizing::new(root.to_vec())), (CONTENT, derive(root, CONTENT)), (NOTES, derive(root, NOTES))]
}

/// Derives the bytes of an entry.
pub fn derive(root: &[u8], entry: &str) -> Zeroizing<Vec<u8>> {
    let root = hmac::Key::new(hmac::HMAC_SHA256, root);
    Zeroizing::new(expand(&root, format!("nudge.dev/{entry}").as_bytes()).as_ref().to_vec())
}

/// Derives a key for one purpose from another key.
pub(crate) fn sub_key(key: &hmac::Key, info: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, expand(key, info).as_ref())
}

/// Does HKDF-Expand to 32 bytes: one block, which is one HMAC. `key` is random, so it needs no HKDF-Extract (3.3).
fn expand(key: &hmac::Key, info: &[u8]) -> hmac::Tag {
    hmac::sign(key, &[info, &[1]].concat())
}

#[cfg(test)]
mod tests {
    use ring::hkdf;

    use super::*;

    fn of_hkdf(info: &[u8]) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        let key = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &[7; KEY_BYTES]);
        key.expand(&[info], hkdf::HKDF_SHA256).unwrap().fill(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_sub_key_is_that_of_hkdf() {
        for info in [&b""[..], b"nudge.dev/seal\0team\0shop", &[9; 300]] {
            let sub_key = sub_key(&ContentKey::new(&[7; KEY_BYTES]).0, info);
            let expected = hmac::sign(&ContentKey::new(&of_hkdf(info)).0, b"message");
            assert_eq!(hmac::sign(&sub_key, b"message").as_ref(), expected.as_ref());
        }
    }

    #[test]
    fn the_secret_holds_the_root_and_what_hkdf_makes_of_it() {
        let of_info = |info: &str| Zeroizing::new(of_hkdf(info.as_bytes()).to_vec());
        let (content, notes) = (of_info("nudge.dev/content"), of_info("nudge.dev/notes"));
        let says = |key: &hmac::Key| hmac::sign(key, b"message").as_ref().to_vec();
        let keys = Keys::of_root(&[7; KEY_BYTES]);
        assert_eq!(says(&keys.content.0), says(&ContentKey::new(&content).0));
        assert_eq!(says(&keys.note.0), says(&NoteKey::new(&notes).0));
        let expected = [("key", Zeroizing::new(vec![7; KEY_BYTES])), ("content", content), ("notes", notes)];
        assert_eq!(entries(&[7; KEY_BYTES]), expected);
    }
}
