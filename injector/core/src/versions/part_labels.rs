//! The labels and annotations of a part: its config, its version, and its number among the parts of the version.
//!
//! Admission and sealing read them here, so that both judge an object alike. A number has one spelling: `1`, not `01`
//! or `+1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_protocol::{ConfigName, NameError, VersionName, labels};

/// The maximum number of parts of one version.
pub const MAX_PARTS: usize = 16;
/// The maximum number of characters of a value that an error repeats.
const MAX_QUOTED_CHARACTERS: usize = 40;

/// The reason why an object can't be part of a version. The message names the label or annotation; the caller names the
/// object and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartLabelsError {
    /// The config's name breaks its rule.
    #[error("label nudge.dev/config: {0}")]
    Config(NameError),
    /// The version is missing.
    #[error("label nudge.dev/version is missing")]
    NoVersion,
    /// The version's name breaks its rule.
    #[error("label nudge.dev/version: {0}")]
    Version(NameError),
    /// The label for the number of parts is not a number.
    #[error("annotation nudge.dev/parts must be a number from 1 to {MAX_PARTS}, not {0:?}")]
    Count(String),
    /// One of several parts has no number.
    #[error("label nudge.dev/part is missing; it must be a number from 1 to {count}")]
    NoNumber {
        /// The number of parts of the version.
        count: usize,
    },
    /// The version has no part of this number.
    #[error("label nudge.dev/part must be a number from 1 to {count}, not {text:?}")]
    Number {
        /// The label's value, cut if it is long.
        text: String,
        /// The number of parts of the version.
        count: usize,
    },
}

/// The number of a part among the parts of its version: `1 <= number <= count <= MAX_PARTS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartNumber {
    number: usize,
    count: usize,
}

impl PartNumber {
    /// Reads the label `nudge.dev/part` and the annotation `nudge.dev/parts`. A version of one part needs neither.
    pub fn parse(part: Option<&str>, parts: Option<&str>) -> Result<Self, PartLabelsError> {
        let count = match parts {
            None => 1,
            Some(text) => number(text, MAX_PARTS).ok_or_else(|| PartLabelsError::Count(quoted(text)))?,
        };
        let number = match part {
            None if count == 1 => 1,
            None => return Err(PartLabelsError::NoNumber { count }),
            Some(text) => number(text, count).ok_or_else(|| PartLabelsError::Number { text: quoted(text), count })?,
        };
        Ok(Self { number, count })
    }

    /// Returns the numbers of the parts of a version that has `count` parts.
    pub fn sequence(count: usize) -> impl Iterator<Item = Self> {
        (1..=count).map(move |number| Self { number, count })
    }

    /// Returns the number of this part, from 1.
    pub fn number(self) -> usize {
        self.number
    }

    /// Returns how many parts the version has.
    pub fn count(self) -> usize {
        self.count
    }
}

/// The labels and annotations of a part, as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLabels {
    /// The config, from `nudge.dev/config`.
    pub config: ConfigName,
    /// The version, from `nudge.dev/version`.
    pub version: VersionName,
    /// The number of the object among the parts of the version.
    pub number: PartNumber,
}

impl PartLabels {
    /// Reads the labels and annotations of an object.
    pub fn parse(object: &ObjectMeta) -> Result<Self, PartLabelsError> {
        let label = |name| object.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
        let parts = object.annotations.as_ref().and_then(|annotations| annotations.get(labels::PARTS));
        let config = ConfigName::new(label(labels::CONFIG).unwrap_or_default()).map_err(PartLabelsError::Config)?;
        let version = label(labels::VERSION).ok_or(PartLabelsError::NoVersion)?;
        Ok(Self {
            config,
            version: VersionName::new(version).map_err(PartLabelsError::Version)?,
            number: PartNumber::parse(label(labels::PART), parts.map(String::as_str))?,
        })
    }
}

/// Returns a number from 1 to `most`, without a sign, blanks or leading zeros.
fn number(text: &str, max: usize) -> Option<usize> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number))?;
    (number.to_string() == text).then_some(number)
}

fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nudge_api::PartKind;
    use proptest::prelude::*;

    use super::super::seal::tests::seals;
    use super::super::seal_check::tests::part;
    use super::super::seal_check::{FactsByUid, SealCheck, seal_check};
    use super::*;
    use crate::keys::PartMeta;

    /// Label, annotation, and the number and count that they give, or the error.
    type Row = (Option<&'static str>, Option<&'static str>, Result<(usize, usize), &'static str>);

    const TABLE: &[Row] = &[
        (None, None, Ok((1, 1))),
        (Some("1"), None, Ok((1, 1))),
        (None, Some("1"), Ok((1, 1))),
        (Some("2"), Some("3"), Ok((2, 3))),
        (Some("16"), Some("16"), Ok((16, 16))),
        (None, Some("2"), Err("label nudge.dev/part is missing; it must be a number from 1 to 2")),
        (Some("2"), None, Err("label nudge.dev/part must be a number from 1 to 1, not \"2\"")),
        (Some("3"), Some("2"), Err("label nudge.dev/part must be a number from 1 to 2, not \"3\"")),
        (Some("1"), Some("17"), Err("annotation nudge.dev/parts must be a number from 1 to 16, not \"17\"")),
    ];
    const MISSPELLED: [&str; 15] =
        ["", "0", "01", "+1", "-1", " 1", "1 ", "1\n", "1.0", "1e0", "0x1", "one", "١", "17", "18446744073709551617"];

    fn object(part: Option<&str>, parts: Option<&str>) -> ObjectMeta {
        let map = |pairs: &[(&str, Option<&str>)]| {
            pairs.iter().filter_map(|&(name, value)| Some((name.to_owned(), value?.to_owned()))).collect()
        };
        ObjectMeta {
            labels: Some(map(&[(labels::CONFIG, Some("shop")), (labels::VERSION, Some("1")), (labels::PART, part)])),
            annotations: Some(map(&[(labels::PARTS, parts)])),
            ..ObjectMeta::default()
        }
    }

    /// Returns the verdicts of admission and of sealing on an object with this number and this count of parts.
    fn judged(number: Option<&str>, parts: Option<&str>) -> [Result<(), String>; 2] {
        let admitted = PartLabels::parse(&object(number, parts)).map(drop).map_err(|error| error.to_string());
        let [number, parts] = [number, parts].map(|text| text.map(str::to_owned));
        let part = PartMeta { part: number, parts, ..part(PartKind::ConfigMap, "a", "1") };
        let sealed = match seal_check("1", &[Arc::new(part)], &FactsByUid::new(), None, &seals()) {
            SealCheck::Invalid(message) => Err(message),
            _ => Ok(()),
        };
        [admitted, sealed]
    }

    #[test]
    fn admission_and_sealing_judge_numbers_alike() {
        for &(number, parts, expected) in TABLE {
            let parsed = PartNumber::parse(number, parts).map(|part| (part.number(), part.count()));
            assert_eq!(parsed.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
            let [admitted, sealed] = judged(number, parts);
            assert_eq!(admitted, expected.map(drop).map_err(str::to_owned), "{number:?} of {parts:?}");
            assert_eq!(sealed.is_ok(), expected.is_ok(), "{number:?} of {parts:?}");
            assert!(expected.err().is_none_or(|error| sealed.unwrap_err().contains(error)));
        }
        for text in MISSPELLED {
            for (number, parts) in [(Some(text), Some("16")), (Some(text), None), (Some("1"), Some(text))] {
                let [admitted, sealed] = judged(number, parts);
                assert!(admitted.is_err() && sealed.is_err(), "{number:?} of {parts:?}");
            }
        }
    }

    #[test]
    fn labels_name_a_config_and_a_version() {
        let with = |label: &str, value: Option<&str>| {
            let mut object = object(None, None);
            match value {
                Some(value) => drop(object.labels.get_or_insert_default().insert(label.to_owned(), value.to_owned())),
                None => drop(object.labels.get_or_insert_default().remove(label)),
            }
            PartLabels::parse(&object).map_err(|error| error.to_string())
        };
        assert_eq!(with(labels::VERSION, Some("1.0.1")).unwrap().version.as_str(), "1.0.1");
        assert_eq!(with(labels::VERSION, None).unwrap_err(), "label nudge.dev/version is missing");
        let current = with(labels::VERSION, Some("current")).unwrap_err();
        assert!(current.starts_with("label nudge.dev/version: version \"current\" is not allowed"), "{current}");
        let config = with(labels::CONFIG, Some("Shop")).unwrap_err();
        assert!(config.starts_with("label nudge.dev/config: config \"Shop\" is not allowed"), "{config}");
        assert!(with(labels::CONFIG, None).is_err());
        assert!(PartLabels::parse(&ObjectMeta::default()).is_err());
    }

    proptest! {
        #[test]
        fn a_part_is_within_its_parts(number in ".{0,4}", parts in ".{0,60}") {
            match PartNumber::parse(Some(&number), Some(&parts)) {
                Ok(part) => prop_assert!(1 <= part.number && part.number <= part.count && part.count <= MAX_PARTS),
                Err(error) => prop_assert!(error.to_string().len() < 500),
            }
            let [admitted, sealed] = judged(Some(&number), Some(&parts));
            prop_assert_eq!(admitted.is_ok(), sealed.is_ok());
        }
    }
}
