//! The faults of an object beyond its schema. Each kind has one function that returns all of them: `config_faults`,
//! `policy_faults`, `approval_faults` and `source_faults`. The kind's webhook refuses a request that adds a fault, and
//! the conditions of an object that no webhook has seen name its faults. `RolloutAnalysis` needs no such function,
//! because its webhook lets only Nudge write it.

use std::fmt::Display;

use nudge_api::{Explanation, Reason};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::names::{is_label_value, is_object_name};

/// The maximum length of a foreign text in a message.
const MAX_SHOWN_BYTES: usize = 80;

pub(crate) fn invalid(field: &str, cause: impl Display) -> Explanation {
    Reason::InvalidSpec.explained(format!("{field}: {cause}"))
}

/// Returns the key in quotes, if no label can have it.
pub(crate) fn no_label_key(key: &str) -> Option<String> {
    (!is_label_key(key)).then(|| format!("{:?}", one_line(key, MAX_SHOWN_BYTES)))
}

/// Returns whether labels can have this key: a name, or a DNS subdomain, a slash and a name.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_object_name) && !name.is_empty() && is_label_value(name)
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
            assert!(shown.len() <= MAX_SHOWN_BYTES + 2 && !shown.contains('\n'), "{shown}");
        }
    }
}
