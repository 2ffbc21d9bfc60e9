//! The dictionary: the keys of every config merged and rendered once as JSON.
//!
//! All readers share the JSON text and the values, so neither requests nor waiting clients cost a copy.

mod env_format;
mod merge;

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use base64::write::EncoderWriter;
use bytes::Bytes;
use nudge_protocol::limits::{MAX_CONFIGS, MAX_DICTIONARY_BYTES, MAX_KEYS};
use nudge_protocol::status::Overlap;
use nudge_protocol::{ConfigName, VersionName, reserved};
use ring::hmac;
use zeroize::Zeroizing;

pub use self::env_format::{NotExpressible, render_env};
use super::{Value, VersionContent};

/// The key of `ETag`s, derived from the pod's token: without it, a short value can't be guessed from its `ETag`.
#[derive(Clone)]
pub struct EtagKey(hmac::Key);

impl EtagKey {
    /// Derives the key from a secret that stays the same for the pod's life. Other keys may be derived from it too.
    pub fn new(secret: &[u8]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"nudge etag");
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// Returns a strong `ETag` for `content`, with its quotes: half of HMAC-SHA256, which is far from collisions.
    pub fn etag(&self, content: &[u8]) -> String {
        let tag = hmac::sign(&self.0, content);
        format!("\"{}\"", URL_SAFE_NO_PAD.encode(&tag.as_ref()[..16]))
    }
}

/// The bound that a dictionary exceeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The dictionary has too many bytes.
    #[error(
        "the dictionary is {0} bytes as JSON, and at most {MAX_DICTIONARY_BYTES} are allowed; make values smaller or use fewer configs"
    )]
    Bytes(usize),
    /// The dictionary has too many keys.
    #[error("the dictionary has {0} keys, and at most {MAX_KEYS} are allowed; put several settings into one key")]
    Keys(usize),
    /// The dictionary has too many configs.
    #[error("there are {0} configs, and at most {MAX_CONFIGS} are allowed in one dictionary; use fewer configs")]
    Configs(usize),
}

/// A config of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigView {
    /// The config, by the name of its `VersionedConfig`.
    pub name: ConfigName,
    /// The name of the version.
    pub version: VersionName,
    /// The digest of the version's content.
    pub digest: String,
    /// The number of keys.
    pub keys: usize,
    /// The length of all values together, in bytes.
    pub bytes: usize,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    key: Box<str>,
    value: Value,
    /// The range of the value in the JSON text, without its quotes.
    literal: Range<usize>,
    /// Whether the literal is base64 of the value.
    binary: bool,
}

impl Entry {
    /// Returns the key, as applications read it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns whether Nudge itself has set this key.
    pub fn is_reserved(&self) -> bool {
        self.key.starts_with(reserved::PREFIX)
    }

    /// Returns whether the JSON holds the value's base64.
    pub fn is_binary(&self) -> bool {
        self.binary
    }
}

/// An immutable dictionary. Its memory is wiped when the last reader drops it.
pub struct Dictionary {
    json: Bytes,
    etag: String,
    entries: Vec<Entry>,
    contents: Vec<Arc<VersionContent>>,
    configs: Vec<ConfigView>,
    overlaps: Vec<Overlap>,
    env: OnceLock<Result<Bytes, NotExpressible>>,
}

impl Dictionary {
    /// Returns the whole dictionary as one JSON object, keys sorted.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    /// Returns the strong `ETag` of [`Self::json`], with its quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Returns every key in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the configs in the order of their merge.
    pub fn configs(&self) -> &[ConfigView] {
        &self.configs
    }

    /// Returns the contents that were merged, in their order.
    pub fn contents(&self) -> &[Arc<VersionContent>] {
        &self.contents
    }

    /// Returns the keys that more than one config has.
    pub fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }

    /// Returns the raw bytes of one value.
    pub fn value(&self, key: &str) -> Option<Bytes> {
        let index = self.entries.binary_search_by(|entry| entry.key().cmp(key)).ok()?;
        Some(self.raw(&self.entries[index]))
    }

    /// Returns the raw bytes of one of [`Self::entries`].
    pub fn raw(&self, entry: &Entry) -> Bytes {
        entry.value.share()
    }

    /// Returns the dictionary in the format for shells, rendered at the first call.
    pub fn env(&self) -> Result<Bytes, NotExpressible> {
        self.env.get_or_init(|| render_env(self)).clone()
    }

    /// Returns the JSON literal of an entry, for comparing without decoding.
    pub(crate) fn literal(&self, entry: &Entry) -> &[u8] {
        &self.json[entry.literal.clone()]
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Dictionary")
            .field("bytes", &self.json.len())
            .field("keys", &self.entries.len())
            .field("configs", &self.configs)
            .finish_non_exhaustive()
    }
}

fn is_binary(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_err()
}

/// Renders the JSON text in two passes. The first pass only counts, so that the second never moves the values in
/// memory. A move would leave copies that are not wiped.
fn render_json(entries: &[(&str, &Value)]) -> Result<(Zeroizing<Vec<u8>>, Vec<Entry>), TooLarge> {
    let mut counter = CountingWriter { inner: io::sink(), count: 0 };
    let result = write_entries(entries, &mut counter);
    let bytes = counter.count;
    let literals = result.ok().filter(|_| bytes <= MAX_DICTIONARY_BYTES).ok_or(TooLarge::Bytes(bytes))?;
    let mut json = Zeroizing::new(Vec::with_capacity(bytes));
    let mut writer = CountingWriter { inner: &mut *json, count: 0 };
    write_entries(entries, &mut writer).map_err(|_| TooLarge::Bytes(bytes))?;
    let entry = |(&(key, value), literal): (&(&str, &Value), Range<usize>)| Entry {
        key: key.into(),
        value: value.clone(),
        literal,
        binary: is_binary(value.as_bytes()),
    };
    Ok((json, entries.iter().zip(literals).map(entry).collect()))
}

/// A writer that counts the bytes.
struct CountingWriter<W> {
    inner: W,
    count: usize,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.count += count;
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes the JSON text. Returns the range of each value in it, without its quotes.
fn write_entries<W: Write>(entries: &[(&str, &Value)], sink: &mut CountingWriter<W>) -> io::Result<Vec<Range<usize>>> {
    let mut literals = Vec::with_capacity(entries.len());
    sink.write_all(b"{")?;
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            sink.write_all(b",")?;
        }
        serde_json::to_writer(&mut *sink, key)?;
        sink.write_all(b":")?;
        let start = sink.count + 1;
        let value = value.as_bytes();
        if let Ok(text) = std::str::from_utf8(value) {
            serde_json::to_writer(&mut *sink, text)?;
        } else {
            sink.write_all(b"\"")?;
            let mut encoder = EncoderWriter::new(&mut *sink, &STANDARD);
            encoder.write_all(value)?;
            encoder.finish()?;
            drop(encoder);
            sink.write_all(b"\"")?;
        }
        literals.push(start..sink.count - 1);
    }
    sink.write_all(b"}")?;
    Ok(literals)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nudge_protocol::Key;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn content(config: &str, version: &str, pairs: &[(&str, &[u8])]) -> Arc<VersionContent> {
        let values = pairs.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::from(*value))).collect();
        Arc::new(VersionContent::new(ConfigName::new(config).unwrap(), VersionName::new(version).unwrap(), values))
    }

    fn merge(contents: &[Arc<VersionContent>]) -> Dictionary {
        Dictionary::merge(contents, &EtagKey::new(b"test")).unwrap()
    }

    #[test]
    fn later_configs_win_and_the_overlap_is_listed() {
        let dictionary =
            merge(&[content("a", "1", &[("k", b"old"), ("x", b"1")]), content("b", "2", &[("k", b"new")])]);
        assert_eq!(dictionary.value("k").unwrap(), &b"new"[..]);
        assert_eq!(dictionary.value("nudge.configs").unwrap(), &b"a=1,b=2"[..]);
        assert_eq!(dictionary.value("nudge.config.b.version").unwrap(), &b"2"[..]);
        let overlap = &dictionary.overlaps()[0];
        assert_eq!((overlap.key.as_str(), overlap.winner.as_str()), ("k", "b"));
        assert_eq!(overlap.hidden[0].as_str(), "a");
    }

    #[test]
    fn what_is_not_utf8_is_base64_in_json_and_raw_by_key() {
        let dictionary = merge(&[content("a", "1", &[("bin", &[0xff, 0x00]), ("text", b"t")])]);
        let json: BTreeMap<String, String> = serde_json::from_slice(&dictionary.json()).unwrap();
        assert_eq!(json["bin"], "/wA=");
        assert_eq!(json["nudge.binary"], "bin");
        assert_eq!(dictionary.value("bin").unwrap(), &[0xff, 0x00][..]);
    }

    #[test]
    fn a_value_is_shared_and_not_copied() {
        for value in [&b"plain"[..], b"two\nlines", &[0xff]] {
            let dictionary = merge(&[content("a", "1", &[("k", value)])]);
            let (first, second) = (dictionary.value("k").unwrap(), dictionary.value("k").unwrap());
            assert_eq!((first.as_ptr(), &first[..]), (second.as_ptr(), value));
        }
    }

    #[test]
    fn the_bounds_hold() {
        let big = vec![b'x'; MAX_DICTIONARY_BYTES / 4];
        let four = [("a", &big[..]), ("b", &big[..]), ("c", &big[..]), ("d", &big[..])];
        let error = Dictionary::merge(&[content("a", "1", &four)], &EtagKey::new(b"")).unwrap_err();
        assert!(matches!(error, TooLarge::Bytes(bytes) if bytes > MAX_DICTIONARY_BYTES), "{error}");

        let names: Vec<String> = (0..=MAX_KEYS).map(|n| format!("k{n}")).collect();
        let pairs: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        let error = Dictionary::merge(&[content("a", "1", &pairs)], &EtagKey::new(b"")).unwrap_err();
        assert_eq!(error, TooLarge::Keys(MAX_KEYS + 1));
        assert!(Dictionary::merge(&[content("a", "1", &pairs[1..])], &EtagKey::new(b"")).is_ok());

        let many: Vec<_> = (0..=MAX_CONFIGS).map(|n| content(&format!("c{n}"), "1", &[])).collect();
        let error = Dictionary::merge(&many, &EtagKey::new(b"")).unwrap_err();
        assert_eq!(error, TooLarge::Configs(MAX_CONFIGS + 1));
    }

    #[test]
    fn the_etag_needs_the_key() {
        let contents = [content("a", "1", &[("k", b"v")])];
        let first = Dictionary::merge(&contents, &EtagKey::new(b"one")).unwrap();
        let second = Dictionary::merge(&contents, &EtagKey::new(b"two")).unwrap();
        assert_ne!(first.etag(), second.etag());
    }

    #[test]
    fn debug_shows_no_value() {
        let text = format!("{:?}", merge(&[content("a", "1", &[("k", b"hunter2")])]));
        assert!(!text.contains("hunter2"), "{text}");
    }

    proptest! {
        #[test]
        fn every_value_comes_back_as_it_was(pairs in btree_map("[a-zA-Z_][a-zA-Z0-9_.-]{0,8}", vec(any::<u8>(), 0..40), 0..8)) {
            let pairs: Vec<(&str, &[u8])> = pairs.iter().filter(|(key, _)| Key::new(key).is_ok())
                .map(|(key, value)| (key.as_str(), value.as_slice())).collect();
            let dictionary = merge(&[content("a", "1", &pairs)]);
            for (key, value) in &pairs {
                prop_assert_eq!(&dictionary.value(key).unwrap()[..], *value);
            }
            let json: BTreeMap<String, String> = serde_json::from_slice(&dictionary.json()).unwrap();
            prop_assert_eq!(json.len(), dictionary.entries().len());
            let keys: Vec<&str> = dictionary.entries().iter().map(Entry::key).collect();
            prop_assert!(keys.is_sorted());
            for (key, value) in &pairs {
                if let Ok(text) = std::str::from_utf8(value) {
                    prop_assert_eq!(json[*key].as_str(), text);
                }
            }
        }

        #[test]
        fn equal_content_has_an_equal_etag_and_other_content_another(a in vec(any::<u8>(), 0..20), b in vec(any::<u8>(), 0..20)) {
            let first = merge(&[content("a", "1", &[("k", &a)])]);
            let second = merge(&[content("a", "1", &[("k", &b)])]);
            prop_assert_eq!(first.etag() == second.etag(), a == b);
        }

        #[test]
        fn merging_is_a_fold_where_the_last_wins(sets in vec(btree_map("[a-d]", "[xyz]", 0..4), 1..4)) {
            let contents: Vec<_> = sets.iter().enumerate().map(|(n, set)| {
                let pairs: Vec<(&str, &[u8])> = set.iter().map(|(key, value)| (key.as_str(), value.as_bytes())).collect();
                content(&format!("c{n}"), "1", &pairs)
            }).collect();
            let dictionary = merge(&contents);
            let mut expected = BTreeMap::new();
            for set in &sets { expected.extend(set.clone()); }
            let user: Vec<(String, Bytes)> = dictionary.entries().iter().filter(|entry| !entry.is_reserved())
                .map(|entry| (entry.key().to_owned(), dictionary.raw(entry))).collect();
            let expected: Vec<(String, Bytes)> = expected.into_iter().map(|(k, v)| (k, Bytes::from(v))).collect();
            prop_assert_eq!(user, expected);
        }
    }
}
