//! One value: bytes that never show up in a log and are wiped when dropped.

use std::fmt;

use zeroize::Zeroizing;

/// The bytes of one key's value. `Debug` shows the length only; the memory is zeroised on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Zeroizing<Vec<u8>>);

impl Value {
    /// Takes the bytes over.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
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
