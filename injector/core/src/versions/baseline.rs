//! The first version of a config whose ConfigMap existed before. The control plane and `kubectl nudge baseline` make
//! the same version.

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_protocol::labels;

use super::digest::{contents_of, part_digest};

/// The name of the version that the ConfigMap becomes.
pub const FIRST_VERSION: &str = "1.0.0";
/// The ConfigMap of Kubernetes that is in every namespace.
pub(crate) const RESERVED: &str = "kube-root-ca.crt";

/// Returns whether those who may change the ConfigMap want it to become a config by itself.
pub fn wants_baseline(plain: &ConfigMap) -> bool {
    let plain_labels = plain.metadata.labels.as_ref();
    plain_labels.and_then(|map| map.get(labels::BASELINE)).is_some_and(|on| on == "true")
}

/// Returns why an existing ConfigMap is not made the first version of a config, if there is a reason.
pub fn baseline_refusal(plain: &ConfigMap) -> Option<&'static str> {
    let marks = plain.metadata.labels.as_ref();
    if plain.metadata.name.as_deref().is_some_and(|name| name == RESERVED) {
        Some("it belongs to Kubernetes")
    } else if marks.is_some_and(|marks| marks.contains_key(labels::PUBLISHED)) {
        Some("it was written for a config that was deleted; remove its label nudge.dev/published to begin again")
    } else if plain.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) {
        Some("it belongs to its owner")
    } else if plain.immutable == Some(true) {
        Some("it is immutable")
    } else if marks.is_some_and(|marks| marks.contains_key(labels::CONFIG)) {
        Some("it is an object of a version")
    } else {
        None
    }
}

/// Returns the config. Workloads read the ConfigMap, so Nudge keeps it at the current version.
pub fn first_config(name: &str) -> VersionedConfig {
    let spec = VersionedConfigSpec { objects: vec![PartKind::ConfigMap], ..VersionedConfigSpec::default() };
    VersionedConfig::new(name, spec)
}

/// Returns the object of the first version. `name` must be free.
pub fn first_version(plain: ConfigMap, config: &str, name: &str) -> ConfigMap {
    let mut version =
        ConfigMap { immutable: Some(true), data: plain.data, binary_data: plain.binary_data, ..ConfigMap::default() };
    version.metadata.name = Some(name.to_owned());
    let pairs = [(labels::CONFIG, config), (labels::VERSION, FIRST_VERSION)];
    version.metadata.labels = Some(pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).into());
    version
}

/// Returns names for the object, to be tried in this order. The second name contains the content's digest, in case
/// something else has the first.
pub fn first_names(plain: &ConfigMap, config: &str) -> [String; 2] {
    let name = format!("{config}-{FIRST_VERSION}");
    let digest = part_digest(&contents_of(plain.data.clone(), plain.binary_data.clone()), None);
    let short: String = digest.chars().rev().take(6).collect();
    [name.clone(), format!("{name}-{short}")]
}

/// Returns whether `found` is the object that would be made, from an attempt that was interrupted.
pub fn is_first_version(found: &ConfigMap, expected: &ConfigMap) -> bool {
    found.metadata.labels == expected.metadata.labels
        && (&found.data, &found.binary_data) == (&expected.data, &expected.binary_data)
        && found.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn only_plain_objects_of_users_are_taken_over() {
        let refusal = |change: fn(&mut ConfigMap)| {
            let mut plain = ConfigMap::default();
            change(&mut plain);
            baseline_refusal(&plain).is_some()
        };
        assert!(!refusal(|_| ()));
        assert!(refusal(|plain| plain.metadata.name = Some(RESERVED.to_owned())));
        assert!(refusal(|plain| plain.metadata.owner_references = Some(vec![OwnerReference::default()])));
        let written = |plain: &mut ConfigMap| {
            plain.metadata.labels = Some([(labels::PUBLISHED.to_owned(), "1".to_owned())].into());
        };
        assert!(refusal(written), "a config that was deleted does not come back by itself");
    }

    #[test]
    fn its_config_map_follows_and_no_secret_is_made() {
        let spec = first_config("shop").spec;
        assert_eq!(spec, VersionedConfigSpec { objects: vec![PartKind::ConfigMap], ..VersionedConfigSpec::default() });
    }

    #[test]
    fn it_is_known_again_by_labels_and_content() {
        let plain = |value: &str| ConfigMap {
            data: Some([("key".to_owned(), value.to_owned())].into()),
            ..ConfigMap::default()
        };
        let [name, other] = first_names(&plain("one"), "shop");
        assert_eq!(name, "shop-1.0.0");
        assert!(other.starts_with("shop-1.0.0-") && other != first_names(&plain("two"), "shop")[1]);
        let one = first_version(plain("one"), "shop", &name);
        assert_eq!(
            (one.immutable, one.metadata.labels.as_ref().unwrap()[labels::VERSION].as_str()),
            (Some(true), "1.0.0")
        );
        assert!(is_first_version(&one, &first_version(plain("one"), "shop", "another")));
        assert!(!is_first_version(&one, &first_version(plain("two"), "shop", &name)));
        assert!(!is_first_version(&plain("one"), &one));
    }
}
