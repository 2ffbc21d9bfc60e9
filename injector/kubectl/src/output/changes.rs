//! The text of `kubectl nudge diff`: the changes of each key. Values that are or were in a Secret are never shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nudge_api::{PartKind, VersionStatus};
use nudge_core::governance::short_digest;
use nudge_core::versions::Contents;
use serde::Serialize;
use similar::TextDiff;
use zeroize::Zeroizing;

use crate::output::visible;

/// A value, and the kind of the object that has it.
#[derive(Clone)]
struct Value {
    kind: PartKind,
    bytes: Zeroizing<Vec<u8>>,
}

/// The contents of one side of a comparison.
pub(crate) trait Parts: IntoIterator<Item = (PartKind, Contents)> {}

impl<I: IntoIterator<Item = (PartKind, Contents)>> Parts for I {}

/// Returns all parts of a version as one map.
fn merge_parts(parts: impl Parts) -> BTreeMap<String, Value> {
    let keys = |(kind, content): (PartKind, Contents)| {
        content.into_iter().map(move |(key, bytes)| (key, Value { kind, bytes }))
    };
    parts.into_iter().flat_map(keys).collect()
}

/// The change of a key from one version to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyChange {
    pub(crate) key: String,
    /// The kind of the change: `added`, `removed`, `changed` or moved.
    pub(crate) what: &'static str,
    /// The reason why there is no text, if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instead: Option<&'static str>,
    /// The change of the lines, as a unified diff; empty if there is none.
    pub(crate) text: String,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, what, instead, text } = self;
        match instead {
            Some(instead) => writeln!(out, "{key}: {what} ({instead})"),
            None if text.is_empty() => writeln!(out, "{key}: {what}"),
            None => out.write_str(text),
        }
    }
}

/// Returns the lines that name both versions, with their digests, which approvals name. `None` stands for a current
/// version that does not exist yet.
pub(crate) fn heads(old: Option<&VersionStatus>, new: Option<&VersionStatus>) -> String {
    let head = |sign: &str, version: Option<&VersionStatus>| match version {
        Some(version) => {
            format!("{sign} version {}, digest {}\n", visible::line(&version.version), short_digest(version))
        }
        None => format!("{sign} no current version yet\n"),
    };
    head("---", old) + &head("+++", new)
}

/// Returns the changes as text, empty if there are none. `names` are the names of the versions.
pub(crate) fn changes(old: impl Parts, new: impl Parts, names: (&str, &str)) -> String {
    list(old, new, names).iter().map(ToString::to_string).collect()
}

pub(crate) fn list(old: impl Parts, new: impl Parts, names: (&str, &str)) -> Vec<KeyChange> {
    let (old, new) = (merge_parts(old), merge_parts(new));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter().filter_map(|key| change(key, old.get(key), new.get(key), names)).collect()
}

fn change(key: &str, old: Option<&Value>, new: Option<&Value>, names: (&str, &str)) -> Option<KeyChange> {
    let change = |what, instead, text| Some(KeyChange { key: key.to_owned(), what, instead, text });
    let what = match (old, new) {
        (None, None) => return None,
        (None, Some(_)) => "added",
        (Some(_), None) => "removed",
        (Some(old), Some(new)) if old.bytes == new.bytes => {
            return match (old.kind, new.kind) {
                (PartKind::ConfigMap, PartKind::Secret) => change("moved into a Secret", None, String::new()),
                (PartKind::Secret, PartKind::ConfigMap) => change("moved out of a Secret", None, String::new()),
                _ => None,
            };
        }
        (Some(_), Some(_)) => "changed",
    };
    if [old, new].into_iter().flatten().any(|value| value.kind == PartKind::Secret) {
        return change(what, Some("Secret"), String::new());
    }
    let text =
        |value: Option<&Value>| value.map_or(Some(String::new()), |value| String::from_utf8(value.bytes.to_vec()).ok());
    let (Some(before), Some(after)) = (text(old), text(new)) else {
        return change(what, Some("binary"), String::new());
    };
    let header =
        |version: &str, exists: bool| if exists { format!("{key} ({version})") } else { "/dev/null".to_owned() };
    let diff = TextDiff::from_lines(&before, &after);
    let text = diff
        .unified_diff()
        .context_radius(3)
        .header(&header(names.0, old.is_some()), &header(names.1, new.is_some()))
        .to_string();
    // An empty value has no lines to show.
    change(what, text.is_empty().then_some("empty"), text)
}

#[cfg(test)]
mod tests {
    use nudge_core::governance::sealed_digest;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn part(kind: PartKind, pairs: &[(&str, &[u8])]) -> (PartKind, Contents) {
        (kind, pairs.iter().map(|&(key, value)| (key.to_owned(), Zeroizing::new(value.to_vec()))).collect())
    }

    #[test]
    fn the_heads_name_versions_and_digests() {
        let version = |name: &str| -> VersionStatus {
            let part = json!({"kind": "Secret", "name": "game", "uid": "u", "digest": "seal:0"});
            let version = json!({"version": name, "state": "Available", "parts": [part], "keys": 1, "bytes": 1});
            serde_json::from_value(version).unwrap()
        };
        let (old, new) = (version("1"), version("2\n+++ version 3"));
        let short = |version: &VersionStatus| sealed_digest(version)["sha256:".len()..][..32].to_owned();
        let expected =
            format!("--- version 1, digest {}\n+++ version 2\\n+++ version 3, digest {}\n", short(&old), short(&new));
        assert_eq!(heads(Some(&old), Some(&new)), expected);
        let first = format!("--- no current version yet\n+++ version 1, digest {}\n", short(&old));
        assert_eq!(heads(None, Some(&old)), first);
    }

    #[test]
    fn text_is_a_unified_diff() {
        let config_map = |pairs: &[(&str, &[u8])]| vec![part(PartKind::ConfigMap, pairs)];
        let old = config_map(&[("game", b"a\nlives=3\nb\n"), ("gone", b"x\n"), ("same", b"s"), ("raw", &[0xff])]);
        let new = config_map(&[("game", b"a\nlives=5\nb\n"), ("empty", b""), ("same", b"s"), ("raw", &[0xfe])]);
        let expected = "empty: added (empty)\n\
                      --- game (1)\n+++ game (2)\n@@ -1,3 +1,3 @@\n a\n-lives=3\n+lives=5\n b\n\
                      --- gone (1)\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
                      raw: changed (binary)\n";
        assert_eq!(changes(old, new, ("1", "2")), expected);
    }

    #[test]
    fn changes_of_secrets_are_shown_without_values() {
        let old = vec![part(
            PartKind::Secret,
            &[("pin", b"1111"), ("old", b"2222"), ("out", b"3333"), ("same", b"4444"), ("open", b"5555")],
        )];
        let new = vec![
            part(PartKind::Secret, &[("pin", b"6666"), ("new", b"7777"), ("same", b"4444")]),
            part(PartKind::ConfigMap, &[("out", b"3333"), ("open", b"8888")]),
        ];
        let text = changes(old, new, ("1", "2"));
        assert_eq!(
            text,
            "new: added (Secret)\nold: removed (Secret)\nopen: changed (Secret)\nout: moved out of a Secret\npin: changed (Secret)\n"
        );
    }

    proptest! {
        #[test]
        fn no_secret_value_is_in_the_text(
            values in proptest::collection::vec(("[a-c]", "[0-9]{8}", any::<bool>(), any::<bool>()), 0..8)
        ) {
            let mut sides = [Vec::new(), Vec::new()];
            for (key, value, secret, side) in &values {
                let kind = if *secret { PartKind::Secret } else { PartKind::ConfigMap };
                sides[usize::from(*side)].push(part(kind, &[(key.as_str(), value.as_bytes())]));
            }
            let [old, new] = sides;
            let text = changes(old, new, ("1", "2"));
            for (_, value, secret, _) in &values {
                prop_assert!(!secret || !text.contains(value.as_str()));
            }
        }
    }
}
