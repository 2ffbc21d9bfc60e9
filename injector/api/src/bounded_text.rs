//! Texts of users in objects, which the schema bounds.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use nudge_protocol::bounded_text::{is_hidden, one_line};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The end of a text that was cut.
const CUT: &str = "…";

/// One line of at most `BYTES` bytes of UTF-8. The schema of the CRD has the same bound, so the API server refuses no
/// object because of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Text<const BYTES: usize>(String);

impl<const BYTES: usize> Text<BYTES> {
    /// Creates a text of one line. A text that is too long is cut and ends with `…`. Characters that a terminal acts
    /// on, or that nobody sees, become spaces.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.len() > BYTES {
            return Self(one_line(&text, BYTES.saturating_sub(CUT.len())) + CUT);
        }
        if text.contains(is_hidden) { Self(one_line(&text, BYTES)) } else { Self(text) }
    }
}

impl<const BYTES: usize> Deref for Text<BYTES> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const BYTES: usize> fmt::Display for Text<BYTES> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

impl<T: Into<String>, const BYTES: usize> From<T> for Text<BYTES> {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

impl<const BYTES: usize> PartialEq<&str> for Text<BYTES> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<const BYTES: usize> JsonSchema for Text<BYTES> {
    fn schema_name() -> Cow<'static, str> {
        format!("Text{BYTES}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Characters, of which there are no more than bytes.
        json_schema!({"type": "string", "maxLength": BYTES})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_stays_and_a_cut_is_seen() {
        assert_eq!(Text::<4>::new("abcd"), "abcd");
        assert_eq!(Text::<5>::new("abcdef"), "ab…");
        assert_eq!(Text::<9>::new("a\u{1b}[2J\n"), "a [2J ");
    }

    proptest! {
        #[test]
        fn a_text_is_one_line_within_its_bound(text in "\\PC{0,20}|.{0,20}|\\s{0,20}") {
            let made = Text::<16>::new(text.clone());
            prop_assert!(made.len() <= 16 && !made.contains(is_hidden), "{:?}", made);
            prop_assert_eq!(&Text::<16>::new(&*made), &made);
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<Text<16>>(&json).unwrap(), made);
        }
    }
}
