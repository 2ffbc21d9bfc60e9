//! The IDs of configs and contents between the hub and agents. Empty text on the wire is no ID.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bounded_text;
use crate::hex::hex;

macro_rules! id_type {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $type(String);

        impl $type {
            /// Returns the ID; `None` if the text is empty.
            pub fn new(text: impl Into<String>) -> Option<Self> {
                let text = text.into();
                (!text.is_empty()).then_some(Self(text))
            }

            /// Returns the ID as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the ID, cut to this number of bytes.
            #[must_use]
            pub fn clipped(self, max_bytes: usize) -> Self {
                Self(bounded_text::clip(self.0, max_bytes))
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl From<$type> for String {
            fn from(id: $type) -> Self {
                id.0
            }
        }

        impl From<String> for $type {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

id_type!(
    /// The uid of a `VersionedConfig`.
    ConfigUid
);
id_type!(
    /// The SHA-256 of a version's block in lower-case hex, which names the content.
    BlockDigest
);

impl BlockDigest {
    /// Returns the digest with these bytes.
    pub fn of_hash(hash: &[u8]) -> Self {
        Self(hex(hash))
    }
}

/// `sha256:` and the hex digest of the content of a Secret part. `Debug` does not show it, because it helps to guess
/// the content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretDigest(String);

impl SecretDigest {
    /// Takes the text of a digest.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretDigest")
    }
}

/// Writes an ID, or else empty text.
#[allow(clippy::ref_option)] // the signature that serde calls
pub(crate) fn serialize<T: AsRef<str>, S: Serializer>(id: &Option<T>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(id.as_ref().map_or("", AsRef::as_ref))
}

/// Reads an ID; empty text is none.
pub(crate) fn deserialize<'de, T: From<String>, D: Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(input)?;
    Ok((!text.is_empty()).then(|| text.into()))
}
