//! A version's content as the hub sends it to agents: all keys and values in key order, in one run of bytes.
//!
//! A block has four bytes with the number of entries, and for each entry one byte with the kind of the object that has
//! the key (0: ConfigMap, 1: Secret), one byte with the key's length, the key, four bytes with the value's length, and
//! the value. All numbers are big endian. Equal contents are equal bytes, so a digest of the bytes identifies the
//! content.

use std::collections::BTreeMap;

use crate::limits::{MAX_DICTIONARY_BYTES, MAX_KEYS, MAX_VALUE_BYTES};
use crate::names::{Key, NameError};
use crate::plural::counted;
use crate::settings::volumes::ObjectKind;

/// The maximum size of a block, in bytes: the bound of a dictionary, which is at least as large as each of its blocks.
pub const MAX_BLOCK_BYTES: usize = MAX_DICTIONARY_BYTES;
/// The size of a block without entries: the number of entries.
pub const BLOCK_HEADER_BYTES: usize = 4;
/// The size of an entry without its key and value: the kind, and both lengths.
pub const ENTRY_HEADER_BYTES: usize = 6;

/// The reason why a content can't be sent or a block can't be read. It may hold keys, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The block ends too early, or continues after its end.
    #[error("the block is cut off or too long at byte {0}")]
    Length(usize),
    /// The keys are not in ascending order, each once.
    #[error("the block's keys are not in order at entry {0}")]
    Order(usize),
    /// A key is not valid.
    #[error(transparent)]
    Key(#[from] NameError),
    /// The key is not UTF-8.
    #[error("the key of entry {0} is not UTF-8")]
    Utf8(usize),
    /// The kind of an object is not known.
    #[error("the kind of entry {0} is not known")]
    Kind(usize),
    /// The content is over a bound.
    #[error(
        "the content has {} and {bytes} bytes; at most {MAX_KEYS} keys and {MAX_BLOCK_BYTES} bytes are allowed",
        counted(*.keys, "key")
    )]
    TooLarge {
        /// The number of keys.
        keys: usize,
        /// The length of the block.
        bytes: usize,
    },
    /// A value is over its bound.
    #[error("the value of {key} is {bytes} bytes, and at most {MAX_VALUE_BYTES} are allowed")]
    ValueTooLarge {
        /// The key of the value.
        key: Key,
        /// The length of the value.
        bytes: usize,
    },
}

/// A value, and the kind of the object that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored<V> {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The value, as the block holds it.
    pub value: V,
}

impl<V> Stored<V> {
    /// Returns a value of a ConfigMap.
    pub fn in_config_map(value: V) -> Self {
        Self { kind: ObjectKind::ConfigMap, value }
    }
}

/// Returns the length of the block of these entries, in bytes.
pub fn encoded_len<V: AsRef<[u8]>>(values: &BTreeMap<Key, Stored<V>>) -> usize {
    let entry_len =
        |(key, stored): (&Key, &Stored<V>)| ENTRY_HEADER_BYTES + key.as_str().len() + stored.value.as_ref().len();
    BLOCK_HEADER_BYTES + values.iter().map(entry_len).sum::<usize>()
}

/// Appends the block to `out`, which grows at most once.
pub fn encode<V: AsRef<[u8]>>(values: &BTreeMap<Key, Stored<V>>, out: &mut Vec<u8>) -> Result<(), BlockError> {
    let bytes = encoded_len(values);
    let too_large = || BlockError::TooLarge { keys: values.len(), bytes };
    if values.len() > MAX_KEYS || bytes > MAX_BLOCK_BYTES {
        return Err(too_large());
    }
    out.reserve_exact(bytes);
    out.extend(u32::try_from(values.len()).map_err(|_| too_large())?.to_be_bytes());
    for (key, Stored { kind, value }) in values {
        let value = value.as_ref();
        if value.len() > MAX_VALUE_BYTES {
            return Err(BlockError::ValueTooLarge { key: key.clone(), bytes: value.len() });
        }
        out.extend([*kind as u8, u8::try_from(key.as_str().len()).map_err(|_| too_large())?]);
        out.extend(key.as_str().as_bytes());
        out.extend(u32::try_from(value.len()).map_err(|_| too_large())?.to_be_bytes());
        out.extend(value);
    }
    Ok(())
}

/// An entry of a block; the value is a part of the block.
pub type EncodedEntry<'a> = (Key, Stored<&'a [u8]>);

/// Reads a block.
pub fn decode(block: &[u8]) -> Result<Vec<EncodedEntry<'_>>, BlockError> {
    let mut remainder = block;
    let mut take = |count: usize| {
        let offset = block.len() - remainder.len();
        let (part, left) = remainder.split_at_checked(count).ok_or(BlockError::Length(offset))?;
        remainder = left;
        Ok::<_, BlockError>(part)
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0_usize, |sum, &byte| sum << 8 | usize::from(byte));
    let count = number(take(4)?);
    if count > MAX_KEYS || block.len() > MAX_BLOCK_BYTES {
        return Err(BlockError::TooLarge { keys: count, bytes: block.len() });
    }
    let mut entries: Vec<EncodedEntry<'_>> = Vec::with_capacity(count);
    for entry in 0..count {
        let kind = match take(1)? {
            [0] => ObjectKind::ConfigMap,
            [1] => ObjectKind::Secret,
            _ => return Err(BlockError::Kind(entry)),
        };
        let length = number(take(1)?);
        let key = std::str::from_utf8(take(length)?).map_err(|_| BlockError::Utf8(entry))?;
        let key = Key::new(key)?;
        if entries.last().is_some_and(|(last, _)| *last >= key) {
            return Err(BlockError::Order(entry));
        }
        let length = number(take(4)?);
        let value = take(length)?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(BlockError::ValueTooLarge { key, bytes: value.len() });
        }
        entries.push((key, Stored { kind, value }));
    }
    match remainder.len() {
        0 => Ok(entries),
        left => Err(BlockError::Length(block.len() - left)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            raw in btree_map("[a-z._-]{0,8}[a-z]", (any::<bool>(), vec(any::<u8>(), 0..40)), 0..20),
        ) {
            let to_stored = |(is_secret, value)| Stored {
                kind: if is_secret { ObjectKind::Secret } else { ObjectKind::ConfigMap },
                value,
            };
            let values: BTreeMap<Key, Stored<Vec<u8>>> =
                raw.into_iter().filter_map(|(name, value)| Some((Key::new(&name).ok()?, to_stored(value)))).collect();
            let mut block = Vec::new();
            encode(&values, &mut block).unwrap();
            prop_assert_eq!(block.len(), encoded_len(&values));
            let owned = |stored: Stored<&[u8]>| Stored { kind: stored.kind, value: stored.value.to_vec() };
            let back: BTreeMap<Key, Stored<Vec<u8>>> =
                decode(&block).unwrap().into_iter().map(|(key, stored)| (key, owned(stored))).collect();
            prop_assert_eq!(&back, &values);
            for cut in 0..block.len() {
                prop_assert!(decode(&block[..cut]).is_err());
            }
            block.push(0);
            prop_assert!(decode(&block).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn keys_out_of_order_are_refused() {
        let block = [&[0, 0, 0, 2, 0, 1][..], b"b", &[0, 0, 0, 0, 0, 1], b"a", &[0, 0, 0, 0]].concat();
        assert_eq!(decode(&block), Err(BlockError::Order(1)));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        let block = [&[0, 0, 0, 1, 2, 1][..], b"a", &[0, 0, 0, 0]].concat();
        assert_eq!(decode(&block), Err(BlockError::Kind(0)));
    }

    #[test]
    fn every_bound_is_kept_on_both_sides() {
        let large = BTreeMap::from([(key("a"), Stored::in_config_map(vec![0; MAX_VALUE_BYTES + 1]))]);
        assert!(matches!(encode(&large, &mut Vec::new()), Err(BlockError::ValueTooLarge { .. })));
        let value = vec![0; MAX_VALUE_BYTES];
        let many: BTreeMap<Key, Stored<&[u8]>> =
            ["a", "b", "c"].map(|name| (key(name), Stored::in_config_map(&value[..]))).into();
        assert!(matches!(encode(&many, &mut Vec::new()), Err(BlockError::TooLarge { keys: 3, .. })));
        let keys: BTreeMap<Key, Stored<&[u8]>> =
            (0..=MAX_KEYS).map(|n| (key(&format!("k{n}")), Stored::in_config_map(&[][..]))).collect();
        assert!(matches!(encode(&keys, &mut Vec::new()), Err(BlockError::TooLarge { .. })));
        let count = u32::try_from(MAX_KEYS + 1).unwrap().to_be_bytes();
        assert!(matches!(decode(&count), Err(BlockError::TooLarge { .. })));
        let length = u32::try_from(MAX_VALUE_BYTES + 1).unwrap().to_be_bytes();
        let block = [&[0, 0, 0, 1, 0, 1][..], b"a", &length, &large[&key("a")].value].concat();
        assert!(matches!(decode(&block), Err(BlockError::ValueTooLarge { .. })));
    }
}
