//! The digest of a part's content, and the mark of a part, for tests without a webhook that makes it. The formats are those of
//! injector/core/src/versions/digest.rs and mark.rs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use nudge_api::PartKind;
use nudge_protocol::labels;
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::Value;

/// The digest of a part of a version without a Secret: the first 192 bits of SHA-256 over all keys and values in key order, each after its length.
fn part_digest(content: &BTreeMap<String, Vec<u8>>) -> String {
    let fields = content.iter().flat_map(|(key, value)| [key.as_bytes(), value]);
    let hash = digest(&SHA256, &framed(fields));
    hash.as_ref()[..24].iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The mark of a part with this metadata, under the injector's key.
pub(super) fn mark(
    key: &[u8],
    kind: PartKind,
    namespace: &str,
    metadata: &Value,
    content: &BTreeMap<String, Vec<u8>>,
) -> Result<String> {
    let own = sign(&Key::new(HMAC_SHA256, key), b"nudge.dev/may-activate");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let [config, version, part] =
        [labels::CONFIG, labels::VERSION, labels::PART].map(|label| text(&metadata["labels"][label]));
    let name = metadata["name"].as_str().context("a part without a name has no mark")?.to_owned();
    let parts = text(&metadata["annotations"][labels::PARTS]);
    let fields = [namespace.to_owned(), kind.to_string(), name, config, version, part, parts, part_digest(content)];
    let message = framed(fields.iter().map(String::as_bytes));
    Ok(BASE64_STANDARD.encode(sign(&Key::new(HMAC_SHA256, own.as_ref()), &message)))
}

fn framed<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    fields.flat_map(|field| (field.len() as u64).to_be_bytes().into_iter().chain(field.iter().copied())).collect()
}
