//! The names of a version's objects: `<config>-<version>`, with a short hash if this name is taken or not a DNS name.
//!
//! A kubelet may keep the content of a deleted immutable object for a long time, so a name must not return with other
//! content. Names that a deleted version may have had therefore count as taken.

use nudge_api::VersionedConfig;
use nudge_core::versions::PartNumber;
use nudge_protocol::hex::hex;
use nudge_protocol::{ConfigName, VersionName};
use ring::digest::{SHA256, digest};

/// The maximum length of the name of an object.
const MAX_NAME_BYTES: usize = 253;
/// The maximum length of the text between two dots.
const MAX_LABEL_BYTES: usize = 63;

/// Returns two names of the part that has this number: the name without a hash, if it is a DNS name, and the
/// name with a hash.
pub fn object_names(config: &ConfigName, version: &VersionName, number: PartNumber) -> (Option<String>, String) {
    let readable = readable_name(config.as_str(), version.as_str(), number);
    // Neither name can contain the separator, so no two versions have the same hash.
    let hash = digest(&SHA256, format!("{config}/{version}/{}/{}", number.number(), number.count()).as_bytes());
    let suffix = format!("-{}", &hex(hash.as_ref())[..8]);
    let mut stem: String =
        readable.to_ascii_lowercase().chars().map(|letter| if letter == '_' { '-' } else { letter }).collect();
    stem.truncate(MAX_NAME_BYTES - suffix.len());
    let mut labels: Vec<String> = stem.split('.').map(|text| dns_label(text, MAX_LABEL_BYTES)).collect();
    let last = labels.pop().map(|last| dns_label(&last, MAX_LABEL_BYTES - suffix.len())).unwrap_or_default();
    labels.push(last);
    labels.retain(|label| !label.is_empty());
    (ConfigName::new(&readable).is_ok().then_some(readable), format!("{}{suffix}", labels.join(".")))
}

/// Returns the text as one label of a DNS name, which begins and ends with a letter or digit.
fn dns_label(text: &str, max_bytes: usize) -> String {
    // Config and version are ASCII.
    let text = text.trim_matches('-');
    text.get(..max_bytes).unwrap_or(text).trim_end_matches('-').to_owned()
}

fn readable_name(config: &str, version: &str, number: PartNumber) -> String {
    if number.count() > 1 { format!("{config}-{version}-{}", number.number()) } else { format!("{config}-{version}") }
}

/// Returns whether an object of this name may have belonged to a deleted version other than `version`.
pub fn was_used(name: &str, config: &ConfigName, version: &VersionName, configs: &[VersionedConfig]) -> bool {
    configs.iter().any(|other| {
        let other_name = other.metadata.name.as_deref().unwrap_or_default();
        let retired = other.status.iter().flat_map(|status| &status.internal.retired);
        retired.filter(|retired| other_name != config.as_str() || retired.version != version.as_str()).any(|retired| {
            PartNumber::sequence(retired.digests.len().max(1))
                .any(|number| readable_name(other_name, &retired.version, number) == name)
        })
    })
}

#[cfg(test)]
mod tests {
    use nudge_api::{InternalStatus, RetiredVersion, VersionedConfigSpec, VersionedConfigStatus};
    use proptest::prelude::*;

    use super::*;

    fn names_of(config: &str, version: &str, number: usize, count: usize) -> (Option<String>, String) {
        let number = PartNumber::sequence(count).nth(number - 1).unwrap();
        object_names(&ConfigName::new(config).unwrap(), &VersionName::new(version).unwrap(), number)
    }

    #[test]
    fn the_name_has_config_and_version() {
        assert_eq!(names_of("shop", "1.0.1", 1, 1).0.as_deref(), Some("shop-1.0.1"));
        assert_eq!(names_of("shop", "1.0.1", 2, 3).0.as_deref(), Some("shop-1.0.1-2"));
        assert!(names_of("shop", "1.0.1", 1, 1).1.starts_with("shop-1.0.1-"));
        assert_eq!(names_of("shop", "Blue", 1, 1).0, None);
        assert!(names_of("shop", "Blue_1", 1, 1).1.starts_with("shop-blue-1-"));
        assert_ne!(names_of("shop", "Blue", 1, 1).1, names_of("shop", "blue", 1, 1).1);
        assert_ne!(names_of("shop", "1-2", 1, 1).1, names_of("shop", "1", 2, 3).1);
    }

    /// A digest as name of the version does not fit behind every name of a config.
    #[test]
    fn the_name_of_a_source_may_be_too_long_to_stand_behind_that_of_the_config() {
        let version = |last: char| format!("src-{}{last}", "0".repeat(39));
        for (length, has_room) in [(18, true), (19, false), (63, false)] {
            let config = "s".repeat(length);
            let [(readable, one), (_, other)] = ['1', '2'].map(|last| names_of(&config, &version(last), 1, 1));
            assert_eq!(readable.is_some(), has_room, "{length}");
            assert!(one != other && ConfigName::new(&one).is_ok(), "{one}");
        }
    }

    #[test]
    fn the_name_of_a_deleted_version_is_taken() {
        let mut other = VersionedConfig::new("shop-1", VersionedConfigSpec::default());
        let retired = RetiredVersion { version: "2".into(), digests: vec!["sha256:x".into()] };
        let internal = InternalStatus { retired: vec![retired], ..InternalStatus::default() };
        other.status = Some(VersionedConfigStatus { internal, ..VersionedConfigStatus::default() });
        let was = |config: &str, version: &str, name: &str| {
            was_used(
                name,
                &ConfigName::new(config).unwrap(),
                &VersionName::new(version).unwrap(),
                std::slice::from_ref(&other),
            )
        };
        assert!(was("shop", "1-2", "shop-1-2"));
        assert!(!was("shop-1", "2", "shop-1-2"), "its own name may return, with the same content");
        assert!(!was("shop", "1-3", "shop-1-3"));
    }

    proptest! {
        #[test]
        fn every_name_is_a_dns_name(
            config in "[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?(\\.[a-z0-9]{1,20}){0,9}",
            version in "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
            number in 1_usize..16,
        ) {
            prop_assume!(version != "current" && ConfigName::new(&config).is_ok());
            let (readable, hashed) = names_of(&config, &version, number, 16);
            prop_assert!(ConfigName::new(&hashed).is_ok(), "{}", hashed);
            prop_assert!(readable.is_none_or(|name| ConfigName::new(&name).is_ok()));
        }
    }
}
