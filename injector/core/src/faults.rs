//! What is wrong with an object beyond what its schema can say. Each kind has one function that names all of it: `config_faults`, `policy_faults`,
//! `approval_faults` and `source_faults`. Its webhook refuses what a request adds, and who reads an object that no webhook has seen says the
//! same in its conditions. `RolloutAnalysis` needs none, because its webhook lets nobody but Nudge write it.

use std::fmt::Display;

use nudge_api::{Explanation, Reason};
use nudge_protocol::bounded_text::one_line;

/// Longest name in the key of a label.
const MAX_NAME_BYTES: usize = 63;
/// Longest prefix of the key of a label.
const MAX_PREFIX_BYTES: usize = 253;
/// The maximum of bytes of a foreign text in a message.
const SHOWN_BYTES: usize = 80;

/// A fault of this field.
pub(crate) fn invalid(field: &str, why: impl Display) -> Explanation {
    Reason::InvalidSpec.explained(format!("{field}: {why}"))
}

/// The key in quotes, where no label can have it.
pub(crate) fn no_label_key(key: &str) -> Option<String> {
    (!is_label_key(key)).then(|| format!("{:?}", one_line(key, SHOWN_BYTES)))
}

/// Returns whether labels can have this key: a name, or the name of a domain, a slash and a name.
fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_name(key),
        Some((prefix, name)) => {
            let lower = |part: &str| part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            prefix.len() <= MAX_PREFIX_BYTES
                && prefix.split('.').all(|part| lower(part) && ends_well(part))
                && is_label_name(name)
        }
    }
}

fn is_label_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= MAX_NAME_BYTES && text.bytes().all(inner) && ends_well(text)
}

fn ends_well(text: &str) -> bool {
    let at_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    at_end(text.as_bytes().first()) && at_end(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_labels_are_those_of_kubernetes() {
        let longest = format!("{}/{}", "d".repeat(253), "k".repeat(63));
        assert_eq!(longest.len(), 317);
        for key in ["zone", "app.kubernetes.io/name", "A", "x/y", "a_b.c-1", &longest] {
            assert_eq!(no_label_key(key), None, "{key}");
        }
        let (long, domain) = ("k".repeat(64), format!("{}/a", "d".repeat(254)));
        for key in ["", "a b", "-a", "a-", "/a", "a/", "a/b/c", "A.b/c", "a..b/c", "-a/b", "ä", "a\nb", &long, &domain]
        {
            let shown = no_label_key(key).unwrap();
            assert!(shown.len() <= SHOWN_BYTES + 2 && !shown.contains('\n'), "{shown}");
        }
    }
}
