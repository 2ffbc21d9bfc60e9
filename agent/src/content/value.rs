//! One value. Its bytes appear in no log, are shared rather than copied, and are wiped when the last clone is dropped.

use std::fmt;

use bytes::Bytes;
use zeroize::Zeroizing;

/// The bytes of one key's value. `Debug` shows only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Bytes);

impl Value {
    /// Creates a value of these bytes.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(Bytes::from_owner(bytes))
    }

    /// Returns the bytes, which may be no text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns a part of these bytes, in the same memory. `part` must be a slice of them.
    #[must_use]
    pub fn part(&self, part: &[u8]) -> Self {
        Self(self.0.slice_ref(part))
    }

    /// Returns the bytes, in the same memory.
    pub fn share(&self) -> Bytes {
        self.0.clone()
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::new(Zeroizing::new(bytes.to_vec()))
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Value({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_value() {
        assert_eq!(format!("{:?}", Value::from(&b"hunter2"[..])), "Value(7 bytes)");
    }
}
