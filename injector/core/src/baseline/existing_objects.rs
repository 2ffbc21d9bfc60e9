//! Which existing ConfigMaps and Secrets become configs by themselves. Admission and the control plane decide by the
//! same function, and `kubectl nudge baseline` makes the same config.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::{AgentlessPolicy, PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_protocol::{ConfigName, VersionName, labels};

use super::secret_type::is_configuration;

/// The name of the version that the object becomes.
pub const FIRST_VERSION: &str = "1.0.0";
/// The ConfigMap of Kubernetes that is in every namespace.
pub(crate) const RESERVED: &str = "kube-root-ca.crt";
/// The ConfigMaps that clusters and meshes put into every namespace.
pub(crate) const BUNDLES: [&str; 3] = [RESERVED, "istio-ca-root-cert", "openshift-service-ca.crt"];
/// The annotation of an object that client-go uses as a lock, and writes every few seconds.
const LOCK_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
/// The annotation that `kubectl apply` writes.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The letters and digits of the hashes that kustomize adds to names: those that seldom make words.
const HASH_ALPHABET: &str = "bcdfghkmt2456789";
/// The length of the hashes that kustomize adds to names.
const HASH_LENGTH: usize = 10;
/// The number of configs of a namespace from which on its label makes no more.
pub const MAX_NAMESPACE_CONFIGS: usize = 100;
/// The reason why a Secret stays ordinary if Nudge lacks the rights to make versions of it.
pub const SECRETS_NOT_MADE: &str =
    "Nudge may not make versions of Secrets in this namespace; bind ClusterRole nudge-publish-secrets there";
/// The reason why an object stays ordinary if its namespace has too many configs.
pub const NAMESPACE_FULL: &str = "its namespace has 100 configs, and its label makes no more";
/// The number of versions that are kept of a config that its namespace wants.
const NAMESPACE_HISTORY_LIMIT: u32 = 3;
/// The value of the label of a config that its namespace wants.
const OF_NAMESPACE: &str = "namespace";

/// An existing object that may become a config.
#[derive(Clone, Copy, Debug)]
pub struct BaselineObject<'a> {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: PartKind,
    /// The metadata, with labels and annotations.
    pub metadata: &'a ObjectMeta,
    /// Whether the API server refuses changes of the content.
    pub is_immutable: bool,
    /// The type of a Secret; `None` for a ConfigMap.
    pub secret_type: Option<&'a str>,
}

impl<'a> From<&'a ConfigMap> for BaselineObject<'a> {
    fn from(object: &'a ConfigMap) -> Self {
        Self {
            kind: PartKind::ConfigMap,
            metadata: &object.metadata,
            is_immutable: object.immutable == Some(true),
            secret_type: None,
        }
    }
}

impl BaselineObject<'_> {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(name).map(String::as_str)
    }

    fn has_annotation(&self, name: &str) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(name))
    }
}

/// The objects of a namespace that become configs by its label `nudge.dev/baseline`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceBaseline {
    /// Only objects with a label of their own.
    #[default]
    Labelled,
    /// The objects that pods with an agent read.
    Mounted,
    /// The objects of `Mounted`, and every ConfigMap.
    All,
}

impl NamespaceBaseline {
    /// Returns the meaning of the namespace's label. A value of a later release means nothing.
    pub fn of(label: Option<&str>) -> Self {
        match label {
            Some("mounted") => Self::Mounted,
            Some("all") => Self::All,
            _ => Self::Labelled,
        }
    }
}

/// The namespace of an object that may become a config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BaselineNamespace {
    /// The objects that become configs.
    pub baseline: NamespaceBaseline,
    /// The number of configs that the namespace has.
    pub configs: usize,
}

impl BaselineNamespace {
    /// Returns whether its label makes no more configs, because it has too many.
    pub fn is_full(self) -> bool {
        self.configs >= MAX_NAMESPACE_CONFIGS
    }
}

/// The label that wants an object to become a config by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineLabel {
    /// `nudge.dev/baseline` of the object itself.
    Object,
    /// `nudge.dev/baseline` of the namespace.
    Namespace,
}

/// Whether an object that pods read becomes a config by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineVerdict {
    /// The object becomes a config, because this label wants it.
    Config(BaselineLabel),
    /// The object could become a config, but no label wants it.
    Unwanted,
    /// A label wants it, but the object stays an ordinary one for this reason.
    Ordinary(&'static str),
    /// The object can't become a config, and no label wants it.
    Impossible,
}

impl BaselineVerdict {
    /// Returns whether the object becomes a config.
    pub fn becomes_config(self) -> bool {
        matches!(self, Self::Config(_))
    }
}

/// Decides whether an object that pods read becomes a config by itself.
pub fn baseline_verdict(object: &BaselineObject<'_>, namespace: BaselineNamespace) -> BaselineVerdict {
    let refusal = baseline_refusal(object);
    if object.label(labels::BASELINE) == Some("true") {
        return refusal.map_or(BaselineVerdict::Config(BaselineLabel::Object), BaselineVerdict::Ordinary);
    }
    if namespace.baseline == NamespaceBaseline::Labelled {
        return if refusal.is_some() { BaselineVerdict::Impossible } else { BaselineVerdict::Unwanted };
    }
    let cause =
        impossibility(object).or_else(|| exclusion(object)).or_else(|| namespace.is_full().then_some(NAMESPACE_FULL));
    cause.map_or(BaselineVerdict::Config(BaselineLabel::Namespace), BaselineVerdict::Ordinary)
}

/// Returns why an existing object is not made the first version of a config.
pub fn baseline_refusal(object: &BaselineObject<'_>) -> Option<&'static str> {
    // The label of a namespace makes the config of such an object again.
    let is_left = object.label(labels::PUBLISHED).is_some();
    let left = "it was written for a config that was deleted; remove its label nudge.dev/published to begin again";
    impossibility(object).or_else(|| is_left.then_some(left))
}

/// Returns why no label makes the object a config.
fn impossibility(object: &BaselineObject<'_>) -> Option<&'static str> {
    if object.name() == RESERVED {
        Some("it belongs to Kubernetes")
    } else if ConfigName::new(object.name()).is_err() || VersionName::new(object.name()).is_err() {
        Some("its name can't be a label, which holds 63 characters")
    } else if object.is_immutable {
        Some("it is immutable")
    } else if object.label(labels::CONFIG).is_some() {
        Some("it is an object of a version")
    } else if object.secret_type.is_some_and(|secret_type| !is_configuration(secret_type)) {
        Some("its type is for an identity or a release, not for configuration")
    } else {
        None
    }
}

/// Returns why the label of a namespace does not make the object a config.
fn exclusion(object: &BaselineObject<'_>) -> Option<&'static str> {
    if BUNDLES.contains(&object.name()) {
        Some("it belongs to the cluster or to a service mesh")
    } else if has_hash(object.name()) {
        Some("its name ends in a hash, so that another text has another name")
    } else if object.has_annotation(LOCK_ANNOTATION) {
        Some("it is the lock of a leader election")
    } else {
        None
    }
}

/// Returns whether the name ends in a hash, as kustomize's generators make it: an object with another text has another
/// name.
fn has_hash(name: &str) -> bool {
    let hash = name.rsplit_once('-').map(|(_, hash)| hash);
    hash.is_some_and(|hash| hash.len() == HASH_LENGTH && hash.chars().all(|letter| HASH_ALPHABET.contains(letter)))
}

/// Returns the config, which follows the text of the objects of these kinds. A config that only the label of its
/// namespace makes restarts no workload, because nobody has requested a restart. A label says that the namespace made
/// it.
pub fn first_config(name: &str, label: BaselineLabel, kinds: &[PartKind]) -> VersionedConfig {
    let spec = VersionedConfigSpec { objects: kinds.to_vec(), ..VersionedConfigSpec::default() };
    match label {
        BaselineLabel::Object => VersionedConfig::new(name, spec),
        BaselineLabel::Namespace => {
            let mut config = VersionedConfig::new(
                name,
                VersionedConfigSpec {
                    agentless_policy: AgentlessPolicy::Ignore,
                    history_limit: NAMESPACE_HISTORY_LIMIT,
                    ..spec
                },
            );
            config.metadata.labels = Some([(labels::BASELINE.to_owned(), OF_NAMESPACE.to_owned())].into());
            config
        }
    }
}

/// Returns whether the label of the namespace made the config.
pub fn is_of_namespace(config: &VersionedConfig) -> bool {
    let config_labels = config.metadata.labels.as_ref();
    config_labels.and_then(|map| map.get(labels::BASELINE)).is_some_and(|value| value == OF_NAMESPACE)
}

/// Returns whether the label of the namespace made the config, and nobody has changed its spec since.
pub fn is_untouched(config: &VersionedConfig) -> bool {
    let first = first_config("", BaselineLabel::Namespace, &config.spec.objects);
    is_of_namespace(config) && config.spec == first.spec
}

/// Returns whether somebody else keeps the config: it has an owner, or a tool applies it from another place.
pub fn is_adopted(metadata: &ObjectMeta) -> bool {
    let is_applied = metadata.managed_fields.iter().flatten().any(|entry| entry.operation.as_deref() == Some("Apply"));
    let annotations = metadata.annotations.as_ref();
    let is_applied_by_client = annotations.is_some_and(|annotations| annotations.contains_key(LAST_APPLIED));
    metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) || is_applied || is_applied_by_client
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, object_labels: &[(&str, &str)]) -> ObjectMeta {
        let pairs = object_labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
        ObjectMeta { name: Some(name.to_owned()), labels: Some(pairs.collect()), ..ObjectMeta::default() }
    }

    fn map(metadata: &ObjectMeta) -> BaselineObject<'_> {
        BaselineObject { kind: PartKind::ConfigMap, metadata, is_immutable: false, secret_type: None }
    }

    fn space(label: Option<&str>, configs: usize) -> BaselineNamespace {
        BaselineNamespace { baseline: NamespaceBaseline::of(label), configs }
    }

    #[test]
    fn only_plain_objects_are_taken_over() {
        let long = "a.".repeat(40);
        for (name, pairs, secret_type, part) in [
            ("web", &[][..], None, None),
            ("web", &[], Some("Opaque"), None),
            ("web", &[], Some("kubernetes.io/tls"), None),
            (RESERVED, &[], None, Some("belongs to Kubernetes")),
            (&long, &[], None, Some("63 characters")),
            ("web", &[(labels::CONFIG, "a")], None, Some("object of a version")),
            ("web", &[(labels::PUBLISHED, "1")], None, Some("config that was deleted")),
            ("web", &[], Some("helm.sh/release.v1"), Some("its type")),
            ("web", &[], Some("kubernetes.io/service-account-token"), Some("its type")),
        ] {
            let metadata = meta(name, pairs);
            let refusal = baseline_refusal(&BaselineObject { secret_type, ..map(&metadata) });
            assert_eq!(refusal.is_some(), part.is_some(), "{name} {pairs:?} {refusal:?}");
            assert!(part.is_none_or(|part| refusal.unwrap().contains(part)), "{refusal:?}");
        }
        let metadata = meta("web", &[]);
        assert!(baseline_refusal(&BaselineObject { is_immutable: true, ..map(&metadata) }).is_some());
    }

    #[test]
    fn a_namespace_wants_what_people_write() {
        use BaselineLabel::{Namespace, Object};
        use BaselineVerdict::{Config, Impossible, Ordinary, Unwanted};
        let (on, part, left) = ((labels::BASELINE, "true"), (labels::CONFIG, "a"), (labels::PUBLISHED, "1"));
        let mounted = Some("mounted");
        for (name, pairs, namespace, expected) in [
            ("web", &[on][..], None, Config(Object)),
            ("web", &[on], mounted, Config(Object)),
            ("web", &[(labels::BASELINE, "yes")], None, Unwanted),
            ("web", &[], mounted, Config(Namespace)),
            ("web", &[], Some("all"), Config(Namespace)),
            ("web", &[], Some("true"), Unwanted),
            ("web", &[part], None, Impossible),
            ("web", &[part], mounted, Ordinary("it is an object of a version")),
            ("web", &[left], None, Impossible),
            ("web", &[left], mounted, Config(Namespace)),
            (RESERVED, &[], mounted, Ordinary("it belongs to Kubernetes")),
            ("istio-ca-root-cert", &[], mounted, Ordinary("it belongs to the cluster or to a service mesh")),
            (
                "web-6ct58987ht",
                &[],
                mounted,
                Ordinary("its name ends in a hash, so that another text has another name"),
            ),
            ("web-6ct58987ht", &[on], mounted, Config(Object)),
            ("web-components", &[], mounted, Config(Namespace)),
        ] {
            let metadata = meta(name, pairs);
            let verdict = baseline_verdict(&map(&metadata), space(namespace, 0));
            assert_eq!(verdict, expected, "{name} {pairs:?} {namespace:?}");
        }
        let mut lock = meta("web", &[]);
        lock.annotations = Some([(LOCK_ANNOTATION.to_owned(), String::new())].into());
        let verdict = baseline_verdict(&map(&lock), space(mounted, 0));
        assert_eq!(verdict, Ordinary("it is the lock of a leader election"));
    }

    #[test]
    fn a_full_namespace_makes_only_what_has_a_label_of_its_own() {
        let (plain, labelled) = (meta("web", &[]), meta("web", &[(labels::BASELINE, "true")]));
        let full = space(Some("all"), MAX_NAMESPACE_CONFIGS);
        let cause = format!("its namespace has {MAX_NAMESPACE_CONFIGS} configs");
        let verdict = baseline_verdict(&map(&plain), full);
        assert!(matches!(verdict, BaselineVerdict::Ordinary(why) if why.starts_with(&cause)), "{verdict:?}");
        assert!(baseline_verdict(&map(&labelled), full).becomes_config());
        assert!(
            baseline_verdict(&map(&plain), BaselineNamespace { configs: full.configs - 1, ..full }).becomes_config()
        );
    }

    #[test]
    fn a_config_of_the_namespace_restarts_nothing_and_is_known_until_it_is_changed() {
        let kinds = [PartKind::ConfigMap, PartKind::Secret];
        let spec = first_config("shop", BaselineLabel::Object, &kinds[..1]).spec;
        assert_eq!(spec, VersionedConfigSpec { objects: vec![PartKind::ConfigMap], ..VersionedConfigSpec::default() });
        let mut made = first_config("shop", BaselineLabel::Namespace, &kinds);
        assert_eq!((made.spec.agentless_policy, made.spec.history_limit), (AgentlessPolicy::Ignore, 3));
        assert!(is_of_namespace(&made) && is_untouched(&made));
        made.spec.history_limit = 10;
        assert!(is_of_namespace(&made) && !is_untouched(&made), "somebody has adopted it");
        assert!(!is_of_namespace(&first_config("shop", BaselineLabel::Object, &kinds)));
        assert!(!is_adopted(&made.metadata));
        made.metadata.annotations = Some([(LAST_APPLIED.to_owned(), String::new())].into());
        assert!(is_adopted(&made.metadata));
        let managers = serde_json::json!({"managedFields": [{"manager": "argocd", "operation": "Apply"}]});
        assert!(is_adopted(&serde_json::from_value(managers).unwrap()));
    }
}
