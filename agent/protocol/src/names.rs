//! The names that users give: checked once on entry, then carried as types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::key_pattern::matches_pattern;

/// The reason why a text is not a name of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} is not allowed: {rule}")]
pub struct NameError {
    /// The kind, such as `version`.
    pub kind: &'static str,
    /// The text, cut to 80 characters.
    pub name: String,
    /// The rule for names of this kind.
    pub rule: &'static str,
}

impl NameError {
    fn new(kind: &'static str, name: &str, rule: &'static str) -> Self {
        Self { kind, name: name.chars().take(80).collect(), rule }
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Box<str>);

        impl $type {
            /// Checks `name` and takes it.
            pub fn new(name: &str) -> Result<Self, NameError> {
                $check(name).map_err(|rule| NameError::new($kind, name, rule))?;
                Ok(Self(name.into()))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(&name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.into()
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// The name of a config: a DNS subdomain (RFC 1123), as the name of a Kubernetes object.
    ConfigName,
    "config",
    check_config
);
name_type!(
    /// The name of a version: a Kubernetes label value, not empty and not `current`.
    VersionName,
    "version",
    check_version
);
name_type!(
    /// A key of the dictionary: as the rule for `ConfigMap` keys allows, and not beginning with `nudge.`.
    Key,
    "key",
    check_key
);
name_type!(
    /// The name of a container in a pod: a DNS label (RFC 1123).
    ContainerName,
    "container",
    check_container
);

name_type!(
    /// A key of the dictionary that becomes an environment variable of the same name.
    VariableName,
    "variable",
    check_variable
);

name_type!(
    /// A pattern of the keys that a container reads. `*` stands for any characters.
    KeyPattern,
    "key pattern",
    check_key_pattern
);

impl KeyPattern {
    /// Returns whether the pattern matches the whole key.
    pub fn matches(&self, key: &str) -> bool {
        matches_pattern(&self.0, key)
    }
}

/// The name that always means the current version; no version itself may have it.
pub const CURRENT: &str = "current";

const CONFIG_RULE: &str = "it must be a DNS name: lower-case letters, digits, '-' and '.', beginning and ending with a \
                           letter or digit, at most 253 characters";
const VERSION_RULE: &str = "it must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or \
                            digit";
const KEY_RULE: &str = "it must be 1 to 253 letters, digits, '-', '_' or '.', not '.' and not beginning with '..'";
const KEY_PATTERN_RULE: &str = "it must be 1 to 253 letters, digits, '-', '_', '.' or '*', which stands for any \
                                characters";
const CONTAINER_RULE: &str = "it must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter \
                              or digit";

const VARIABLE_RULE: &str = "it must be 1 to 128 letters, digits or '_', not beginning with a digit, NUDGE_ or \
                             MY_CONFIG_";

fn check_variable(name: &str) -> Result<(), &'static str> {
    let is_reserved = ["NUDGE_", "MY_CONFIG_"].iter().any(|prefix| name.starts_with(prefix));
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = name.bytes().all(is_allowed) && name.starts_with(|first: char| !first.is_ascii_digit());
    (name.len() <= 128 && is_name && !is_reserved).then_some(()).ok_or(VARIABLE_RULE)
}

fn check_config(name: &str) -> Result<(), &'static str> {
    (name.len() <= 253 && name.split('.').all(is_dns_label)).then_some(()).ok_or(CONFIG_RULE)
}

fn check_version(name: &str) -> Result<(), &'static str> {
    if name == CURRENT {
        return Err("'current' stands for the version that is current; choose another name");
    }
    let has_form = has_ends_and_bytes(name, |byte| byte.is_ascii_alphanumeric(), is_key_byte);
    (name.len() <= 63 && has_form).then_some(()).ok_or(VERSION_RULE)
}

fn check_key(name: &str) -> Result<(), &'static str> {
    if name.starts_with(crate::reserved::PREFIX) {
        return Err("keys that begin with 'nudge.' are reserved for Nudge; rename the key");
    }
    let has_form = name != "." && !name.starts_with("..") && name.bytes().all(is_key_byte);
    ((1..=253).contains(&name.len()) && has_form).then_some(()).ok_or(KEY_RULE)
}

fn check_key_pattern(name: &str) -> Result<(), &'static str> {
    let is_allowed = |byte| is_key_byte(byte) || byte == b'*';
    ((1..=253).contains(&name.len()) && name.bytes().all(is_allowed)).then_some(()).ok_or(KEY_PATTERN_RULE)
}

fn check_container(name: &str) -> Result<(), &'static str> {
    is_dns_label(name).then_some(()).ok_or(CONTAINER_RULE)
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_dns_end(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_dns_byte(byte: u8) -> bool {
    is_dns_end(byte) || byte == b'-'
}

/// Returns whether the text has a first and a last byte that are `is_end`, and all its bytes are `is_allowed`.
fn has_ends_and_bytes(text: &str, is_end: fn(u8) -> bool, is_allowed: fn(u8) -> bool) -> bool {
    let end_bytes = [text.bytes().next(), text.bytes().last()];
    end_bytes.iter().all(|byte| byte.is_some_and(is_end)) && text.bytes().all(is_allowed)
}

/// Returns whether the text can be the name of a namespace: a DNS label (RFC 1123).
pub fn is_dns_label(label: &str) -> bool {
    label.len() <= 63 && has_ends_and_bytes(label, is_dns_end, is_dns_byte)
}

/// Returns whether the text can be the name of an object. Kubernetes requires a DNS subdomain, but allows longer labels
/// than DNS does.
pub fn is_object_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|label| has_ends_and_bytes(label, is_dns_end, is_dns_byte))
}

/// Returns whether the text can be the value of a label. The empty text can.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || value == CURRENT || check_version(value).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_are_label_values_and_never_current() {
        for good in ["1.0.1", "2026-11-21", "blue", "a", "A_b", &"x".repeat(63)] {
            assert!(VersionName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "current", ".", "..", "a/b", "../x", "-a", "a-", "a b", "ü", &"x".repeat(64)] {
            assert!(VersionName::new(bad).is_err(), "{bad}");
        }
        let refusal = VersionName::new("current").unwrap_err().to_string();
        assert!(refusal.contains("choose another name"), "{refusal}");
    }

    #[test]
    fn keys_follow_the_rule_of_config_maps_and_leave_nudge_its_own() {
        for good in ["game.properties", ".env", "A", "a_b-c", &"k".repeat(253)] {
            assert!(Key::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "..data", "a b", "a/b", "nudge.configs", "nudge.", &"k".repeat(254)] {
            assert!(Key::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_are_names_of_shells_and_not_nudges_own() {
        for good in ["GREETING", "greeting", "_a1", &"V".repeat(128)] {
            assert!(VariableName::new(good).is_ok() && Key::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1A", "a.b", "a-b", "a=b", "NUDGE_PORT", "MY_CONFIG_TOKEN", &"V".repeat(129)] {
            assert!(VariableName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_are_keys_with_stars() {
        for good in ["*", "db.*", "tls.crt", "*.y*ml", &"k".repeat(253)] {
            assert!(KeyPattern::new(good).is_ok(), "{good}");
        }
        for bad in ["", "db.?", "db/*", "a b", "a=b", "a,b", &"k".repeat(254)] {
            assert!(KeyPattern::new(bad).is_err(), "{bad}");
        }
        let pattern = KeyPattern::new("db.*").unwrap();
        assert!(pattern.matches("db.host") && !pattern.matches("dbs.host"));
    }

    #[test]
    fn configs_are_dns_subdomains() {
        for good in ["shop", "shop.keys", "a-1"] {
            assert!(ConfigName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "Shop", "a..b", "-a", "a-", "a_b", ".a", &"a".repeat(64)] {
            assert!(ConfigName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_and_labels_of_kubernetes_are_safe_as_one_path_element() {
        for good in ["shop", "shop.keys", "a-1", "1", &"a".repeat(253)] {
            assert!(is_object_name(good) && ConfigName::new(good).is_ok() != (good.len() > 63), "{good}");
        }
        for bad in ["", "Shop", "a..b", "-a", "a-.b", "a_b", ".a", "a/b", "a?b", "a%2fb", "..", &"a".repeat(254)] {
            assert!(!is_object_name(bad) && !is_dns_label(bad), "{bad}");
        }
        assert!(is_dns_label("team-1") && !is_dns_label("a.b") && !is_dns_label(&"a".repeat(64)));
        assert!(is_label_value("") && is_label_value("current") && is_label_value("A_b.c"));
        assert!(!is_label_value("..") && !is_label_value("a/b") && !is_label_value(&"x".repeat(64)));
    }

    #[test]
    fn a_refusal_is_short_however_long_the_name() {
        let refusal = Key::new(&"é".repeat(10_000)).unwrap_err();
        assert_eq!(refusal.name.chars().count(), 80);
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_safe_as_one_path_element(name in "\\PC{0,70}") {
            for accepted in [VersionName::new(&name).is_ok(), Key::new(&name).is_ok(), ConfigName::new(&name).is_ok()] {
                if accepted {
                    prop_assert!(!name.is_empty() && !name.contains('/') && !name.contains('\0'));
                    prop_assert!(name != "." && !name.starts_with(".."));
                }
            }
        }

        #[test]
        fn names_survive_json(name in "[a-z][a-z0-9]{0,20}") {
            let version = VersionName::new(&name).unwrap();
            let json = serde_json::to_string(&version).unwrap();
            prop_assert_eq!(serde_json::from_str::<VersionName>(&json).unwrap(), version);
        }
    }
}
