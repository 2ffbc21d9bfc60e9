//! The config of a ConfigMap that existed before. The control plane and `kubectl nudge baseline` make the same config.

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{AgentlessPolicy, PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_protocol::labels;

/// The name of the version that the ConfigMap becomes.
pub const FIRST_VERSION: &str = "1.0.0";
/// The ConfigMap of Kubernetes that is in every namespace.
pub(crate) const RESERVED: &str = "kube-root-ca.crt";

/// The ConfigMaps that clusters and meshes put into every namespace.
const BUNDLES: [&str; 3] = [RESERVED, "istio-ca-root-cert", "openshift-service-ca.crt"];
/// The letters and digits of the hashes that kustomize adds to names: those that seldom make words.
const HASH_ALPHABET: &str = "bcdfghkmt2456789";
/// The length of these hashes.
const HASH_LENGTH: usize = 10;

/// The label that wants a ConfigMap to become a config by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineLabel {
    /// The label of the ConfigMap.
    Object,
    /// The label of its namespace.
    Namespace,
}

/// Returns the label that wants the ConfigMap to become a config by itself, if there is one. `of_namespace` is the label
/// `nudge.dev/baseline` of the namespace.
pub fn baseline_label(plain: &ConfigMap, of_namespace: Option<&str>) -> Option<BaselineLabel> {
    let plain_labels = plain.metadata.labels.as_ref();
    if plain_labels.and_then(|map| map.get(labels::BASELINE)).is_some_and(|on| on == "true") {
        return Some(BaselineLabel::Object);
    }
    let name = plain.metadata.name.as_deref().unwrap_or_default();
    let is_wanted = of_namespace == Some("mounted") && !BUNDLES.contains(&name) && !has_hash(name);
    is_wanted.then_some(BaselineLabel::Namespace)
}

/// Returns whether the name ends in a hash, as kustomize's generators make it: an object with another text has another
/// name.
fn has_hash(name: &str) -> bool {
    let hash = name.rsplit_once('-').map(|(_, hash)| hash);
    hash.is_some_and(|hash| hash.len() == HASH_LENGTH && hash.chars().all(|letter| HASH_ALPHABET.contains(letter)))
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

/// The number of configs of a namespace from which on its label makes no more.
pub const MAX_NAMESPACE_CONFIGS: usize = 100;
/// The value of the label `nudge.dev/baseline` of a config that only its namespace wants.
const OF_NAMESPACE: &str = "namespace";
/// The number of versions that are kept of a config that its namespace wants.
const NAMESPACE_HISTORY_LIMIT: u32 = 3;

/// Returns the config, which follows the text of the ConfigMap. A config that only the namespace wants restarts no
/// workload, because nobody has requested a restart.
pub fn first_config(name: &str, label: BaselineLabel) -> VersionedConfig {
    let spec = VersionedConfigSpec { objects: vec![PartKind::ConfigMap], ..VersionedConfigSpec::default() };
    let spec = match label {
        BaselineLabel::Object => spec,
        BaselineLabel::Namespace => VersionedConfigSpec {
            agentless_policy: AgentlessPolicy::Ignore,
            history_limit: NAMESPACE_HISTORY_LIMIT,
            ..spec
        },
    };
    let mut config = VersionedConfig::new(name, spec);
    if label == BaselineLabel::Namespace {
        config.metadata.labels = Some([(labels::BASELINE.to_owned(), OF_NAMESPACE.to_owned())].into());
    }
    config
}

/// Returns whether only its namespace wants the config.
pub fn is_of_namespace(config: &VersionedConfig) -> bool {
    let label = config.metadata.labels.as_ref().and_then(|labels| labels.get(labels::BASELINE));
    label.is_some_and(|label| label == OF_NAMESPACE)
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
    fn its_config_follows_the_text_and_no_secret_is_made() {
        let spec = first_config("shop", BaselineLabel::Object).spec;
        assert_eq!(spec, VersionedConfigSpec { objects: vec![PartKind::ConfigMap], ..VersionedConfigSpec::default() });
        let config = first_config("shop", BaselineLabel::Namespace);
        assert_eq!((config.spec.agentless_policy, config.spec.history_limit), (AgentlessPolicy::Ignore, 3));
        assert!(is_of_namespace(&config) && !is_of_namespace(&first_config("shop", BaselineLabel::Object)));
    }

    #[test]
    fn a_namespace_wants_what_people_write() {
        let map = |name: &str, label: Option<&str>| {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.to_owned());
            map.metadata.labels = label.map(|on| [(labels::BASELINE.to_owned(), on.to_owned())].into());
            map
        };
        let mounted = Some("mounted");
        for (name, label, namespace, expected) in [
            ("web", Some("true"), None, Some(BaselineLabel::Object)),
            ("web", Some("true"), mounted, Some(BaselineLabel::Object)),
            ("web", Some("yes"), None, None),
            ("web", None, mounted, Some(BaselineLabel::Namespace)),
            ("web", None, Some("true"), None),
            ("kube-root-ca.crt", None, mounted, None),
            ("istio-ca-root-cert", None, mounted, None),
            ("web-6ct58987ht", None, mounted, None),
            ("web-components", None, mounted, Some(BaselineLabel::Namespace)),
        ] {
            assert_eq!(baseline_label(&map(name, label), namespace), expected, "{name} {label:?} {namespace:?}");
        }
    }
}
