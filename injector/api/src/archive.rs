//! How the status stores versions. Where all of them would take too much of it, those in use stand there as they are and all others in a line
//! each, so that hundreds of them fit into one object.
//!
//! A line has the name, the time of sealing in seconds since 1970 (hexadecimal, or `-`) with capital letters for state and consent, how many keys
//! and bytes there are, and for each part the index of its name in a table of names, and uid and digest in base64url. In the table `*` stands
//! for the name of the version.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Consent, PartKind, PartStatus, RetiredVersion, VersionState, VersionStatus};

/// Most bytes of versions that are all stored as they are.
const ALL_BYTES: usize = 16 * 1024;
/// Most bytes of one that is stored so beside an archive.
const WHOLE_BYTES: usize = 480;
/// How digests begin that are stored in short, and the letters for that.
const SHORT: [(char, &str); 2] = [('c', "sha256:"), ('s', "seal:")];
/// Bytes of such a digest.
const DIGEST_BYTES: usize = 24;

/// The versions, in the order in which they were sealed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Stored {
    /// The complete versions that are in use; all of them where there is no archive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    versions: Vec<VersionStatus>,
    /// All complete versions in short, in the order in which they were sealed, where they are many. kubectl nudge versions shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<Archive>,
}

/// Versions in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct Archive {
    /// Kinds and names of objects; `*` stands for the name of the version.
    names: Vec<String>,
    /// A line for each version: its name; when it was sealed, in seconds since 1970 (hexadecimal), and letters for what it is (T target, C current,
    /// F failed, B broken; N, A consent needed, needed anew); how many keys and bytes it has; and each part: the number of its name, `:`, and its
    /// uid and digest in base64url. The name alone where the version stands among `versions`.
    lines: Vec<String>,
}

fn is_in_use(state: VersionState) -> bool {
    matches!(state, VersionState::Target | VersionState::Current | VersionState::Failed)
}

fn bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// Bytes that versions take at most in a status, whatever their states.
#[derive(Debug, Default)]
pub struct StoredBytes {
    /// With names and no lines.
    archive: Archive,
    lines: usize,
}

impl StoredBytes {
    /// Adds a version.
    pub fn add(&mut self, version: &VersionStatus) {
        let known = self.archive.names.len();
        let line = self.archive.line(version);
        // And commas.
        self.lines += self.archive.names[known..].iter().chain([&line]).map(|text| bytes(text) + 1).sum::<usize>();
    }

    /// Of all that were added.
    pub fn total(&self) -> usize {
        // Only one can be the target, the current one, and the one that failed.
        (bytes(&Archive::default()) + self.lines).max(ALL_BYTES) + 3 * WHOLE_BYTES
    }
}

impl<'a> FromIterator<&'a VersionStatus> for StoredBytes {
    fn from_iter<T: IntoIterator<Item = &'a VersionStatus>>(versions: T) -> Self {
        let mut all = Self::default();
        versions.into_iter().for_each(|version| all.add(version));
        all
    }
}

/// Bytes of a deleted version in the status.
pub fn retired_bytes(version: &RetiredVersion) -> usize {
    // And a comma.
    bytes(&retired::line(version)) + 1
}

impl Stored {
    fn of(versions: &[VersionStatus]) -> Self {
        let is_whole = |version: &&VersionStatus| is_in_use(version.state) && bytes(version) <= WHOLE_BYTES;
        if bytes(&versions) <= ALL_BYTES {
            return Self { versions: versions.to_vec(), archive: None };
        }
        let mut archive = Archive::default();
        for version in versions {
            let line = if is_whole(&version) { version.version.clone() } else { archive.line(version) };
            archive.lines.push(line);
        }
        Self { versions: versions.iter().filter(is_whole).cloned().collect(), archive: Some(archive) }
    }

    fn read(self) -> Result<Vec<VersionStatus>, String> {
        let Self { mut versions, archive } = self;
        let Some(Archive { names, lines }) = archive else { return Ok(versions) };
        let mut all = Vec::with_capacity(versions.len() + lines.len());
        for line in &lines {
            if line.contains(' ') {
                all.push(parse(&names, line).ok_or_else(|| format!("line {line:?} of the archive can't be read"))?);
            } else if let Some(at) = versions.iter().position(|version| version.version == *line) {
                all.push(versions.remove(at));
            }
        }
        all.append(&mut versions);
        Ok(all)
    }
}

impl Archive {
    /// The line of a version, after its names were added.
    fn line(&mut self, version: &VersionStatus) -> String {
        let VersionStatus { version: name, state, parts, keys, bytes, sealed_at, consent, origin: _ } = version;
        let sealed = sealed_at.as_ref().map_or_else(|| "-".to_owned(), |at| format!("{:x}", at.0.as_second()));
        let state = match state {
            VersionState::Available => "",
            VersionState::Target => "T",
            VersionState::Current => "C",
            VersionState::Failed => "F",
            VersionState::Broken => "B",
        };
        let consent = match consent {
            None => "",
            Some(Consent::Needed) => "N",
            Some(Consent::NeededAnew) => "A",
        };
        let mut line = format!("{name} {sealed}{state}{consent} {keys} {bytes}");
        for part in parts {
            let object = format!("{} {}", part.kind, part.name.replacen(name.as_str(), "*", 1));
            let known = self.names.iter().rposition(|known| *known == object);
            let index = known.unwrap_or_else(|| {
                self.names.push(object);
                self.names.len() - 1
            });
            // Writing to a String can't fail.
            let _ = match short_uid(&part.uid).zip(short_digest(&part.digest)) {
                Some((uid, digest)) => write!(line, " {index}:{uid}{digest}"),
                None => write!(line, " {index}={},{}", part.uid, part.digest),
            };
        }
        line
    }
}

fn parse(names: &[String], line: &str) -> Option<VersionStatus> {
    let mut words = line.split(' ');
    let (version, sealed, keys, bytes) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (sealed, letters) = sealed.split_at(sealed.find(|it: char| it.is_ascii_uppercase()).unwrap_or(sealed.len()));
    let sealed_at = match sealed {
        "-" => None,
        // Of a time before 1970 these are the digits of its two's complement.
        hex => Some(Time(Timestamp::from_second(u64::from_str_radix(hex, 16).ok()?.cast_signed()).ok()?)),
    };
    let (mut state, mut consent) = (VersionState::Available, None);
    for letter in letters.chars() {
        match letter {
            'T' => state = VersionState::Target,
            'C' => state = VersionState::Current,
            'F' => state = VersionState::Failed,
            'B' => state = VersionState::Broken,
            'N' => consent = Some(Consent::Needed),
            'A' => consent = Some(Consent::NeededAnew),
            _ => return None,
        }
    }
    let part = |text: &str| {
        let (index, rest) = text.split_at(text.find([':', '='])?);
        let (kind, name) = names.get(index.parse::<usize>().ok()?)?.split_once(' ')?;
        let kind = [PartKind::ConfigMap, PartKind::Secret].into_iter().find(|known| known.as_str() == kind)?;
        let (uid, digest) = match rest.strip_prefix(':') {
            Some(short) => (long_uid(short.get(..22)?)?, long_digest(short.get(22..)?)?),
            None => rest.strip_prefix('=')?.split_once(',').map(|(uid, digest)| (uid.to_owned(), digest.to_owned()))?,
        };
        Some(PartStatus { kind, name: name.replacen('*', version, 1), uid, digest })
    };
    let parts = words.map(part).collect::<Option<Vec<_>>>()?;
    let (keys, bytes) = (keys.parse().ok()?, bytes.parse().ok()?);
    Some(VersionStatus { version: version.to_owned(), state, parts, keys, bytes, sealed_at, consent, origin: None })
}

/// The uid in 22 characters, if it is a UUID as the API server writes it.
fn short_uid(uid: &str) -> Option<String> {
    let bits = u128::from_str_radix(&uid.replace('-', ""), 16).ok()?;
    let short = BASE64.encode(bits.to_be_bytes());
    (long_uid(&short)? == uid).then_some(short)
}

fn long_uid(short: &str) -> Option<String> {
    let bits: [u8; 16] = BASE64.decode(short).ok()?.try_into().ok()?;
    let text = format!("{:032x}", u128::from_be_bytes(bits));
    Some([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}

/// A letter for its kind, and the digest in 32 characters.
fn short_digest(digest: &str) -> Option<String> {
    let (letter, text) = SHORT.iter().find_map(|(letter, prefix)| Some((letter, digest.strip_prefix(prefix)?)))?;
    let pairs = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let bytes = pairs.collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() == DIGEST_BYTES)?;
    let short = format!("{letter}{}", BASE64.encode(bytes));
    (long_digest(&short)? == digest).then_some(short)
}

fn long_digest(short: &str) -> Option<String> {
    let prefix = SHORT.iter().find(|(letter, _)| short.starts_with(*letter))?.1;
    let bytes = BASE64.decode(short.get(1..)?).ok().filter(|bytes| bytes.len() == DIGEST_BYTES)?;
    Some(format!("{prefix}{}", nudge_protocol::hex::hex(&bytes)))
}

/// Of the field with the versions, which is flattened.
pub(crate) fn serialize<S: Serializer>(versions: &[VersionStatus], serializer: S) -> Result<S::Ok, S::Error> {
    Stored::of(versions).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VersionStatus>, D::Error> {
    Stored::deserialize(deserializer)?.read().map_err(D::Error::custom)
}

/// Deleted versions: a line each, with the digests in short.
pub(crate) mod retired {
    use super::{Deserialize, Deserializer, RetiredVersion, Serialize, Serializer, long_digest, short_digest};

    pub(super) fn line(retired: &RetiredVersion) -> String {
        let mut line = retired.version.clone();
        for digest in &retired.digests {
            line += " ";
            line += &short_digest(digest).unwrap_or_else(|| format!("={digest}"));
        }
        line
    }

    pub(crate) fn serialize<S: Serializer>(all: &[RetiredVersion], serializer: S) -> Result<S::Ok, S::Error> {
        all.iter().map(line).collect::<Vec<_>>().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RetiredVersion>, D::Error> {
        use serde::de::Error as _;
        let read = |line: &str| {
            let mut words = line.split(' ');
            let version = words.next()?.to_owned();
            let digest = |text: &str| text.strip_prefix('=').map(str::to_owned).or_else(|| long_digest(text));
            Some(RetiredVersion { version, digests: words.map(digest).collect::<Option<_>>()? })
        };
        let parsed = |line: String| read(&line).ok_or_else(|| D::Error::custom(format!("{line:?} can't be read")));
        Vec::<String>::deserialize(deserializer)?.into_iter().map(parsed).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::VersionedConfigStatus;

    fn stored(status: &VersionedConfigStatus) -> serde_json::Value {
        serde_json::to_value(status).unwrap()
    }

    fn digest(prefix: &str, number: u32) -> String {
        format!("{prefix}{number:048x}")
    }

    fn part() -> impl Strategy<Value = PartStatus> {
        let kind = prop_oneof![Just(PartKind::ConfigMap), Just(PartKind::Secret)];
        let name = "(shop-)?(1\\.0\\.[0-9]|2)?(-[a-z]{1,8})?[a-z]";
        let uid = prop_oneof![
            any::<u128>().prop_map(|bits| long_uid(&BASE64.encode(bits.to_be_bytes())).unwrap()),
            "[A-Fa-f0-9-]{1,40}",
        ];
        let digest = prop_oneof![
            any::<u32>().prop_map(|number| digest("sha256:", number)),
            any::<u32>().prop_map(|number| digest("seal:", number)),
            "[cs]?[A-Fa-f0-9:]{0,70}",
        ];
        (kind, name, uid, digest).prop_map(|(kind, name, uid, digest)| PartStatus { kind, name, uid, digest })
    }

    prop_compose! {
        fn version()(
            version in "[A-Za-z0-9]([A-Za-z0-9_.-]{0,10}[A-Za-z0-9])?",
            state in prop_oneof![
                Just(VersionState::Available), Just(VersionState::Target), Just(VersionState::Current),
                Just(VersionState::Failed), Just(VersionState::Broken),
            ],
            parts in proptest::collection::vec(part(), 0..4),
            keys: u32,
            bytes: u64,
            sealed_at in proptest::option::of(-1_000_000_i64..4_000_000_000),
            consent in proptest::option::of(prop_oneof![Just(Consent::Needed), Just(Consent::NeededAnew)]),
        ) -> VersionStatus {
            let sealed_at = sealed_at.map(|second| Time(Timestamp::from_second(second).unwrap()));
            VersionStatus { version, state, parts, keys, bytes, sealed_at, consent, origin: None }
        }
    }

    proptest! {
        #[test]
        fn what_is_stored_is_read(
            many: bool,
            mut versions in proptest::collection::vec(version(), 0..8),
            retired in proptest::collection::vec(("[a-z0-9.]{1,8}", proptest::collection::vec("[cs=]?[a-f0-9:]{0,50}", 0..3)), 0..4),
        ) {
            versions.sort_by(|one, other| one.version.cmp(&other.version));
            versions.dedup_by(|one, other| one.version == other.version);
            if many {
                versions.extend((0..60).map(|number| usual(number, VersionState::Available)));
            }
            let retired = retired.into_iter().map(|(version, digests)| RetiredVersion { version, digests }).collect();
            let status = VersionedConfigStatus { versions, retired, ..VersionedConfigStatus::default() };
            prop_assert_eq!(serde_json::from_value::<VersionedConfigStatus>(stored(&status)).unwrap(), status);
        }
    }

    #[test]
    fn a_time_before_1970_is_read() {
        let sealed_at = Some(Time(Timestamp::from_second(-1).unwrap()));
        let version = VersionStatus { sealed_at, ..usual(1, VersionState::Available) };
        let mut archive = Archive::default();
        let line = archive.line(&version);
        assert_eq!(parse(&archive.names, &line), Some(version));
    }

    fn usual(number: u32, state: VersionState) -> VersionStatus {
        let version = format!("1.0.{number}");
        let part = PartStatus {
            kind: PartKind::ConfigMap,
            name: format!("shop-{version}"),
            uid: format!("0af7651c-d43b-41d5-8e2f-{number:012x}"),
            digest: digest("sha256:", number),
        };
        let sealed_at = Timestamp::from_second(1_700_000_000).ok().map(Time);
        VersionStatus {
            version,
            state,
            parts: vec![part],
            keys: 20,
            bytes: 4096,
            sealed_at,
            consent: None,
            origin: None,
        }
    }

    #[test]
    fn what_is_in_use_can_be_read_by_people_and_the_rest_is_short() {
        let mut versions = vec![
            usual(7, VersionState::Available),
            usual(8, VersionState::Current),
            VersionStatus { consent: Some(Consent::Needed), ..usual(9, VersionState::Broken) },
        ];
        let retired = vec![RetiredVersion { version: "1.0.6".to_owned(), digests: vec![digest("seal:", 6)] }];
        let of = |versions: &[VersionStatus], retired: &[RetiredVersion]| {
            let (versions, retired) = (versions.to_vec(), retired.to_vec());
            stored(&VersionedConfigStatus { versions, retired, ..VersionedConfigStatus::default() })
        };
        assert_eq!(of(&versions, &[])["versions"], json!(versions), "a few are all stored as they are");
        versions.extend((10..70).map(|number| usual(number, VersionState::Available)));
        let json = of(&versions, &retired);
        assert_eq!(json["versions"], json!([usual(8, VersionState::Current)]));
        assert_eq!(json["archive"]["names"], json!(["ConfigMap shop-*"]));
        let lines = [
            "1.0.7 6553f100 20 4096 0:CvdlHNQ7QdWOLwAAAAAABwcAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAH",
            "1.0.8",
            "1.0.9 6553f100BN 20 4096 0:CvdlHNQ7QdWOLwAAAAAACQcAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAJ",
        ];
        assert_eq!(json["archive"]["lines"].as_array().unwrap()[..3], lines);
        assert_eq!(json["retired"], json!(["1.0.6 sAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAG"]));
        for line in ["1.0.7 6553f100 20", "1.0.7 x 20 4096", "1.0.7 6553f100X 20 4096", "1.0.7 - 20 4096 1:CvdlHNQ"] {
            let damaged = json!({"archive": {"names": ["ConfigMap shop-*"], "lines": [line]}});
            assert!(serde_json::from_value::<VersionedConfigStatus>(damaged).is_err(), "{line}");
        }
    }

    #[test]
    fn five_hundred_versions_take_less_than_44_kib_whatever_they_are() {
        use VersionState::{Available, Broken, Current, Failed, Target};
        for (many, few) in [(Available, [Available; 3]), (Available, [Current, Target, Failed]), (Broken, [Broken; 3])]
        {
            let state = |number: u32| few.get(number as usize).copied().unwrap_or(many);
            let versions: Vec<_> = (0..500).map(|number| usual(number, state(number))).collect();
            let most = versions.iter().collect::<StoredBytes>().total();
            let status = VersionedConfigStatus { versions, ..VersionedConfigStatus::default() };
            let bytes = stored(&status).to_string().len() - stored(&VersionedConfigStatus::default()).to_string().len();
            assert!(bytes <= most && most < 44 * 1024, "{bytes} {most}");
        }
    }
}
