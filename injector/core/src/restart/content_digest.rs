//! The digest of the content that a template's pods start with. Versions with the same content give the same template,
//! and so does a way back.

use nudge_api::{AgentlessPolicy, PartKind, VersionedConfig};
use nudge_protocol::hex::hex;
use ring::digest::{Context, SHA256};

use super::annotations::ContentDigest;
use super::config_uses::ConfigUses;
use super::known_contents::KnownContents;
use super::read_keys::ReadKeys;
use super::workload::{TargetedWorkload, Workload};
use crate::rollout::version_to_publish;

impl TargetedWorkload {
    /// Returns the workload with the digest of the content that its pods should start with; `None` if it uses no
    /// config. Of an object with `contents`, only the keys count that the pods read. A workload that was restarted with
    /// the same content keeps its digest, although the values may have been known then and not now, or now alone.
    pub fn new<'a>(
        workload: Workload,
        contents: &KnownContents,
        config: impl Fn(&str) -> Option<&'a VersionedConfig> + Copy,
    ) -> Option<Self> {
        let whole = content_digest(&workload.uses, &KnownContents::default(), config)?;
        let digest = match workload.mark().filter(|mark| mark.whole == whole) {
            Some(mark) => mark.digest.clone(),
            None => content_digest(&workload.uses, contents, config)?,
        };
        Some(Self { workload, digest, whole })
    }
}

/// Returns the digest of the content of these configs. For a config that an agent serves, this is the whole version
/// that pods should run. For another config, it is the published content (nothing if workloads without an agent are
/// ignored); for pods that an agent serves, too, the content to publish. Of an object with `contents`, only the keys
/// count that the pods read.
fn content_digest<'a>(
    uses: &ConfigUses,
    contents: &KnownContents,
    config: impl Fn(&str) -> Option<&'a VersionedConfig>,
) -> Option<ContentDigest> {
    let mut sum = Context::new(&SHA256);
    let mut has_content = false;
    for name in uses.names() {
        let Some(config) = config(name) else { continue };
        // Names and digests contain neither separator.
        let mut add = |name: &str, digests: Option<Vec<String>>| {
            let Some(digests) = digests else { return };
            has_content = true;
            sum.update(format!("{name}\n{}\0", digests.join("\n")).as_bytes());
        };
        if uses.configs.contains(name) || uses.mounted.contains(name) {
            add(name, version_digests(config));
            continue;
        }
        for kind in PartKind::ALL {
            let title = match kind {
                PartKind::ConfigMap => name.clone(),
                PartKind::Secret => format!("secret/{name}"),
            };
            let digests = uses.keys_of(kind, name).map(|keys| object_digests(config, uses, kind, keys, contents));
            add(&title, digests.flatten());
        }
    }
    has_content.then(|| ContentDigest::from(&*hex(&sum.finish().as_ref()[..16])))
}

/// Returns the sealed digests of the version of this config that an agent serves.
fn version_digests(config: &VersionedConfig) -> Option<Vec<String>> {
    let status = config.status.as_ref()?;
    let version = status.version(version_to_publish(status)?)?;
    Some(version.parts.iter().map(|part| part.digest.clone()).collect())
}

/// Returns the sealed digests of the content of this kind that pods start with, or the digests of the named `keys`: of
/// the published content; of the content to publish if an agent serves the pods, too.
fn object_digests(
    config: &VersionedConfig,
    uses: &ConfigUses,
    kind: PartKind,
    keys: &ReadKeys,
    contents: &KnownContents,
) -> Option<Vec<String>> {
    let status = config.status.as_ref()?;
    let version = match kind {
        _ if uses.has_live_agent => version_to_publish(status),
        _ if config.spec.agentless_policy == AgentlessPolicy::Ignore => None,
        kind => kind.published_version(status),
    };
    let version = status.version(version?)?;
    if let ReadKeys::Named(keys) = keys
        && let Some(digests) = contents.named(version, kind, keys)
    {
        return Some(digests);
    }
    let parts = version.parts.iter().filter(|part| part.kind == kind);
    Some(parts.map(|part| part.digest.clone()).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use nudge_api::{PartStatus, RolloutStage, VersionStatus};
    use serde_json::json;

    use super::super::annotations::RestartMark;
    use super::super::known_contents::tests::{moved, uses};
    use super::super::tests::{mark, workload};
    use super::*;

    pub(crate) fn config(name: &str, published: &str, digest: &str) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name}, "spec": {},
            "status": {"currentVersion": published, "publishedVersion": published, "versions": [{
                "version": published, "state": "Current", "keys": 1, "bytes": 1,
                "parts": [{"kind": "ConfigMap", "name": format!("{name}-{published}"), "uid": "u", "digest": digest}],
            }]},
        }))
        .unwrap()
    }

    fn digest(configs: &[VersionedConfig], uses: &ConfigUses) -> Option<ContentDigest> {
        let contents = KnownContents::default();
        content_digest(uses, &contents, |name| {
            configs.iter().find(|config| config.metadata.name.as_deref() == Some(name))
        })
    }

    fn of(configs: &[VersionedConfig], names: &[&str]) -> Option<ContentDigest> {
        let object = |&name: &&str| ((PartKind::ConfigMap, name.to_owned()), ReadKeys::All);
        digest(configs, &ConfigUses { objects: names.iter().map(object).collect(), ..ConfigUses::default() })
    }

    #[test]
    fn with_an_agent_secrets_count_and_nothing_is_published() {
        let by_agent = ConfigUses { configs: ["shop".to_owned()].into(), ..ConfigUses::default() };
        let both = ConfigUses {
            objects: [((PartKind::ConfigMap, "shop".to_owned()), ReadKeys::All)].into(),
            ..by_agent.clone()
        };
        let with_secret = |digest: &str| {
            let mut config = config("shop", "1", "sha256:a");
            let status = config.status.as_mut().unwrap();
            let secret =
                PartStatus { kind: PartKind::Secret, digest: digest.to_owned(), ..status.versions[0].parts[0].clone() };
            status.versions[0].parts.push(secret);
            status.published_version = None;
            config.spec.agentless_policy = AgentlessPolicy::Ignore;
            config
        };
        let [one, other] = ["seal:b", "seal:c"].map(with_secret);
        let digest_of = |config: &VersionedConfig, uses| digest(std::slice::from_ref(config), uses);
        assert!(digest_of(&one, &by_agent).is_some() && digest_of(&one, &by_agent) == digest_of(&one, &both));
        assert_ne!(digest_of(&one, &by_agent), digest_of(&other, &by_agent));
        assert_eq!(of(std::slice::from_ref(&one), &["shop"]), None, "for those without an agent nothing is published");
        // From the end of the bake on it is the target.
        let mut moved = one.clone();
        let status = moved.status.as_mut().unwrap();
        status
            .versions
            .push(VersionStatus { version: "2".to_owned(), ..other.status.as_ref().unwrap().versions[0].clone() });
        status.target_version = Some("2".to_owned());
        assert_eq!(digest_of(&moved, &by_agent), digest_of(&one, &by_agent));
        moved.status.as_mut().unwrap().rollout.stage = Some(RolloutStage::Restarting);
        assert_eq!(digest_of(&moved, &by_agent), digest_of(&other, &by_agent));
    }

    #[test]
    fn readers_of_a_published_secret_follow_it_alone() {
        let mut config = config("shop", "1", "sha256:a");
        let status = config.status.as_mut().unwrap();
        let map = status.versions[0].parts[0].clone();
        status.versions[0].parts.push(PartStatus { kind: PartKind::Secret, digest: "seal:b".to_owned(), ..map });
        let of_secret = |config: &VersionedConfig| {
            let objects = [((PartKind::Secret, "shop".to_owned()), ReadKeys::All)].into();
            let uses = ConfigUses { objects, ..ConfigUses::default() };
            digest(std::slice::from_ref(config), &uses)
        };
        assert_eq!(of_secret(&config), None, "it is not published");
        let before = of(std::slice::from_ref(&config), &["shop"]);
        config.status.as_mut().unwrap().published_secret_version = Some("1".to_owned());
        assert_eq!(
            of(std::slice::from_ref(&config), &["shop"]),
            before,
            "who reads the ConfigMap alone sees no change"
        );
        let one = of_secret(&config);
        assert!(one.is_some() && one != before);
        config.status.as_mut().unwrap().versions[0].parts[0].digest = "sha256:c".to_owned();
        assert_eq!(of_secret(&config), one);
        config.status.as_mut().unwrap().versions[0].parts[1].digest = "seal:c".to_owned();
        assert_ne!(of_secret(&config), one);
    }

    #[test]
    fn it_follows_the_content_and_not_the_version() {
        let one = of(&[config("shop", "1", "sha256:a")], &["shop", "not-ours"]);
        assert_eq!(one, of(&[config("shop", "2", "sha256:a")], &["shop"]));
        assert_ne!(one, of(&[config("shop", "1", "sha256:b")], &["shop"]));
        assert_eq!(of(&[], &["not-ours"]), None);
    }

    #[test]
    fn of_named_keys_it_follows_the_values() {
        let values = |x: &str, y: &str| [("x", x), ("y", y)].map(|(key, value)| (key.to_owned(), value.into())).into();
        let uses = uses(&["x".to_owned(), "z".to_owned()].into());
        let digest_of = |values: &BTreeMap<String, Vec<u8>>| {
            let (config, contents) = moved(&BTreeMap::new(), values);
            content_digest(&uses, &contents, |name| (name == "shop").then_some(&config)).unwrap()
        };
        let first = digest_of(&values("1", "1"));
        assert_eq!(first, digest_of(&values("1", "2")), "nobody reads y");
        assert_ne!(first, digest_of(&values("2", "1")));
        let mut added: BTreeMap<String, Vec<u8>> = values("1", "1");
        added.insert("z".to_owned(), Vec::new());
        assert_ne!(first, digest_of(&added));
        let (config, _) = moved(&BTreeMap::new(), &values("1", "1"));
        let whole = content_digest(&uses, &KnownContents::default(), |_| Some(&config)).unwrap();
        assert_eq!(Some(whole), of(std::slice::from_ref(&config), &["shop"]), "the content is not known");
    }

    #[test]
    fn a_workload_keeps_the_digest_of_the_same_content_whatever_is_known_of_it() {
        let values = BTreeMap::from([("x".to_owned(), b"1".to_vec()), ("y".to_owned(), b"1".to_vec())]);
        let (config, known) = moved(&BTreeMap::new(), &values);
        let (other, known_of_other) = moved(&values, &BTreeMap::from([("x".to_owned(), b"2".to_vec())]));
        let reader = Workload { uses: uses(&["x".to_owned()].into()), ..workload("web") };
        let targeted = |workload: Workload, config, contents: &KnownContents| {
            TargetedWorkload::new(workload, contents, |_| Some(config)).unwrap()
        };
        let unknown = KnownContents::default();
        for contents in [&known, &unknown] {
            let TargetedWorkload { digest, whole, .. } = targeted(reader.clone(), &config, contents);
            let last_mark = Some(RestartMark { digest: digest.clone(), whole, ..mark(101, "") });
            let restarted = Workload { digest: Some(digest.clone()), last_mark, ..reader.clone() };
            for later in [&known, &unknown] {
                assert_eq!(targeted(restarted.clone(), &config, later).digest, digest);
            }
            for later in [&known_of_other, &unknown] {
                assert_ne!(targeted(restarted.clone(), &other, later).digest, digest);
            }
            let undone = Workload { digest: Some("undone".into()), ..restarted };
            assert_eq!(targeted(undone, &config, contents).digest, digest);
        }
    }

    #[test]
    fn all_configs_of_a_template_count_and_those_that_are_ignored_do_not() {
        let (shop, mut keys) = (config("shop", "1", "sha256:a"), config("keys", "1", "sha256:b"));
        let both = of(&[shop.clone(), keys.clone()], &["keys", "shop"]);
        let alone = of(std::slice::from_ref(&shop), &["shop"]);
        assert_ne!(both, alone);
        keys.spec.agentless_policy = AgentlessPolicy::Ignore;
        assert_eq!(of(&[shop, keys], &["keys", "shop"]), alone);
    }
}
