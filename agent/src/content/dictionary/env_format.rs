//! The dictionary as lines that a POSIX shell can source: `KEY='value'`.
//!
//! Quoting follows the shell command language of POSIX.1-2024, section 2.2.2: inside single quotes every character is
//! literal, and a single quote is written outside of them.

use bytes::Bytes;
use nudge_protocol::limits::MAX_ENV_BYTES;
use nudge_protocol::reserved;
use zeroize::Zeroizing;

use super::{Dictionary, Entry};

/// The reason why a dictionary has no env format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExpressible {
    /// A key is not the name of a shell variable.
    #[error(
        "key {0:?} is not a name of a shell variable (letters, digits and '_', not beginning with a digit); rename \
         it, or read the JSON format"
    )]
    Key(String),
    /// A key has the name of a variable that Nudge sets itself.
    #[error("key {0:?} is a variable that Nudge sets itself in this format; rename it, or read the JSON format")]
    Reserved(String),
    /// A value holds a NUL byte, which a shell variable can't hold.
    #[error("the value of key {0:?} holds a NUL byte, which a shell variable can't hold; read the JSON format")]
    Nul(String),
    /// The text would be over the size limit.
    #[error(
        "in this format the dictionary is {0} bytes, and at most {MAX_ENV_BYTES} are allowed; read the JSON format"
    )]
    TooLarge(usize),
}

/// Renders `dictionary`. Every key must be expressible; none is left out. Values that are not UTF-8 are base64 as in
/// the JSON format, and `NUDGE_BINARY` lists them.
pub fn render_env(dictionary: &Dictionary) -> Result<Bytes, NotExpressible> {
    let mut lines = Vec::with_capacity(dictionary.entries().len());
    for entry in dictionary.entries() {
        if let Some(name) = variable_name(entry)? {
            let value = text_value(dictionary, entry);
            if value.contains(&0) {
                return Err(NotExpressible::Nul(entry.key().to_owned()));
            }
            lines.push((name, value));
        }
    }
    lines.sort_unstable_by_key(|(name, _)| *name);

    let count_quotes = |value: &[u8]| value.iter().filter(|&&byte| byte == b'\'').count();
    let size = lines.iter().map(|(name, value)| name.len() + value.len() + 3 * count_quotes(value) + 4).sum();
    if size > MAX_ENV_BYTES {
        return Err(NotExpressible::TooLarge(size));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(size));
    for (name, value) in lines {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"='");
        for (index, piece) in value.split(|&byte| byte == b'\'').enumerate() {
            if index > 0 {
                text.extend_from_slice(b"'\\''");
            }
            text.extend_from_slice(piece);
        }
        text.extend_from_slice(b"'\n");
    }
    Ok(Bytes::from_owner(text))
}

/// Returns the name of the variable for an entry; `None` for Nudge's keys that another variable already contains.
fn variable_name(entry: &Entry) -> Result<Option<&str>, NotExpressible> {
    let key = entry.key();
    if entry.is_reserved() {
        return Ok(match key {
            reserved::CONFIGS => Some(reserved::ENV_CONFIGS),
            reserved::BINARY => Some(reserved::ENV_BINARY),
            _ => None,
        });
    }
    if key == reserved::ENV_CONFIGS || key == reserved::ENV_BINARY {
        return Err(NotExpressible::Reserved(key.to_owned()));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if key.bytes().all(is_allowed) && !key.starts_with(|first: char| first.is_ascii_digit()) {
        Ok(Some(key))
    } else {
        Err(NotExpressible::Key(key.to_owned()))
    }
}

fn text_value(dictionary: &Dictionary, entry: &Entry) -> Bytes {
    if entry.is_binary() { Bytes::copy_from_slice(dictionary.literal(entry)) } else { dictionary.raw(entry) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;
    use std::sync::Arc;

    use nudge_protocol::{ConfigName, Key, VersionName};
    use proptest::prelude::*;

    use super::*;
    use crate::content::{EtagKey, Value, VersionContent};

    fn render(pairs: &[(&str, &[u8])]) -> Result<Bytes, NotExpressible> {
        let values: BTreeMap<Key, Value> =
            pairs.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::from(*value))).collect();
        let version = VersionName::new("1").unwrap();
        let content = VersionContent::new(ConfigName::new("c").unwrap(), version, values);
        Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap().env()
    }

    #[test]
    fn nothing_is_left_out_silently() {
        assert_eq!(render(&[("A", b"1"), ("b_2", b"x y")]).unwrap(), "A='1'\nNUDGE_CONFIGS='c=1'\nb_2='x y'\n");
        assert_eq!(render(&[("a.b", b"")]), Err(NotExpressible::Key("a.b".into())));
        assert_eq!(render(&[("1a", b"")]), Err(NotExpressible::Key("1a".into())));
        assert_eq!(render(&[("a", b"x\0y")]), Err(NotExpressible::Nul("a".into())));
        assert_eq!(render(&[("NUDGE_CONFIGS", b"")]), Err(NotExpressible::Reserved("NUDGE_CONFIGS".into())));
        assert_eq!(render(&[("a", &[0xff])]).unwrap(), "NUDGE_BINARY='a'\nNUDGE_CONFIGS='c=1'\na='/w=='\n");
    }

    #[test]
    fn the_size_is_bounded_also_where_quotes_make_it_grow() {
        let quotes = vec![b'\''; MAX_ENV_BYTES / 3];
        assert!(matches!(render(&[("a", &quotes)]), Err(NotExpressible::TooLarge(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_real_shell_reads_back_every_value(value in "[^\\x00]{0,40}") {
            let script = format!("{}printf %s \"$key\"", String::from_utf8(render(&[("key", value.as_bytes())]).unwrap().to_vec()).unwrap());
            let shell = Command::new("sh").arg("-c").arg(script).output().unwrap();
            prop_assert_eq!(String::from_utf8(shell.stdout).unwrap(), value);
        }
    }
}
