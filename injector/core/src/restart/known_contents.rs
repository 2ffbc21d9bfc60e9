//! The contents of ConfigMap parts, as far as restarts depend on single keys: a digest of each value.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use nudge_api::{
    ConditionType, PartKind, PartStatus, ReleaseOutcome, VersionStatus, VersionedConfig, VersionedConfigStatus,
    find_condition,
};
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

use super::config_uses::ConfigUses;
use super::read_keys::ReadKeys;
use crate::versions::{Contents, part_digest};

/// The digests of the values of ConfigMap parts, by the sealed digests of the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownContents(HashMap<String, Arc<BTreeMap<String, String>>>);

impl KnownContents {
    /// Adds the content of a part, if it is what was sealed.
    pub fn add(&mut self, part: &PartStatus, content: &Contents) {
        if part_digest(content, None) == part.digest {
            let of_value = |value: &[u8]| hex(&digest(&SHA256, value).as_ref()[..16]);
            let digests = content.iter().map(|(key, value)| (key.clone(), of_value(value))).collect();
            self.0.insert(part.digest.clone(), Arc::new(digests));
        }
    }

    /// Returns the digests of these keys in a version; `None` if a part is not known. A key that the version lacks is
    /// written alone.
    pub(super) fn named(&self, version: &VersionStatus, keys: &BTreeSet<String>) -> Option<Vec<String>> {
        let parts: Vec<_> = config_map_parts(version).map(|part| self.0.get(&part.digest)).collect::<Option<_>>()?;
        let named = |key: &String| match parts.iter().find_map(|part| part.get(key)) {
            Some(digest) => format!("{key}={digest}"),
            None => key.clone(),
        };
        Some(keys.iter().map(named).collect())
    }

    /// Returns the parts to read, so that it is known what pods with these uses read of this config by single keys.
    pub fn missing_parts<'a>(&self, uses: &ConfigUses, name: &str, config: &'a VersionedConfig) -> Vec<&'a PartStatus> {
        let Some((ReadKeys::Named(_), status)) = uses.config_maps.get(name).zip(config.status.as_ref()) else {
            return Vec::new();
        };
        let names = [&status.published_version, &status.current_version, &status.target_version];
        let versions = names.into_iter().flatten().filter_map(|version| status.version(version));
        versions.flat_map(config_map_parts).filter(|part| !self.0.contains_key(&part.digest)).collect()
    }

    /// Returns whether a move changes nothing that pods read: they read single keys of the published ConfigMap, and
    /// these have the same values in the published version and in the version that the move replaces.
    pub fn is_unaffected(
        &self,
        uses: &ConfigUses,
        name: &str,
        status: &VersionedConfigStatus,
        replaced: Option<&str>,
    ) -> bool {
        let Some(ReadKeys::Named(keys)) = uses.config_maps.get(name) else { return false };
        if has_older_processes(status) {
            return false;
        }
        let reads_secret = uses.secrets.contains(name) && status.published_secret_version.is_some();
        if reads_secret || uses.configs.contains(name) {
            return false;
        }
        let named = |version: Option<&str>| self.named(status.version(version?)?, keys);
        let published = named(status.published_version.as_deref());
        published.is_some() && published == named(replaced)
    }
}

/// Returns whether processes may run other content than the version that the move replaces: a restart was refused
/// before the move, or the last move ended with another version.
fn has_older_processes(status: &VersionedConfigStatus) -> bool {
    let begin = status.rollout.start_time.as_ref();
    let restarted = find_condition(&status.conditions, ConditionType::Restarted)
        .filter(|restarted| begin.is_none_or(|begin| restarted.last_transition_time.0 < begin.0));
    let last_outcome = status.releases.iter().rev().find_map(|release| release.outcome);
    restarted.is_some_and(|restarted| restarted.status == "False")
        || last_outcome.is_some_and(|outcome| outcome != ReleaseOutcome::Current)
}

fn config_map_parts(version: &VersionStatus) -> impl Iterator<Item = &PartStatus> {
    version.parts.iter().filter(|part| part.kind == PartKind::ConfigMap)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;

    fn content(values: &BTreeMap<String, Vec<u8>>) -> Contents {
        values.iter().map(|(key, value)| (key.clone(), Zeroizing::new(value.clone()))).collect()
    }

    /// Returns a config whose published version `new` replaces `old`, and what is known of both.
    pub(crate) fn moved(
        old: &BTreeMap<String, Vec<u8>>,
        new: &BTreeMap<String, Vec<u8>>,
    ) -> (VersionedConfig, KnownContents) {
        let mut config = super::super::content_digest::tests::config("shop", "old", &part_digest(&content(old), None));
        let status = config.status.as_mut().unwrap();
        let mut version = VersionStatus { version: "new".to_owned(), ..status.versions[0].clone() };
        version.parts[0].digest = part_digest(&content(new), None);
        status.versions.push(version);
        (status.target_version, status.published_version) = (Some("new".to_owned()), Some("new".to_owned()));
        let mut contents = KnownContents::default();
        for (version, values) in status.versions.iter().zip([old, new]) {
            contents.add(&version.parts[0], &content(values));
        }
        (config, contents)
    }

    pub(crate) fn uses(keys: &BTreeSet<String>) -> ConfigUses {
        let config_maps = [("shop".to_owned(), ReadKeys::Named(keys.clone()))].into();
        ConfigUses { config_maps, ..ConfigUses::default() }
    }

    #[test]
    fn what_is_not_known_is_read_and_counts_as_changed() {
        let values = BTreeMap::from([("x".to_owned(), b"1".to_vec())]);
        let (config, contents) = moved(&values, &BTreeMap::new());
        let status = config.status.as_ref().unwrap();
        let (reads_x, reads_y) = (uses(&["x".to_owned()].into()), uses(&["y".to_owned()].into()));
        let is_unaffected =
            |contents: &KnownContents, uses: &ConfigUses| contents.is_unaffected(uses, "shop", status, Some("old"));
        assert!(is_unaffected(&contents, &reads_y) && !is_unaffected(&contents, &reads_x));
        assert!(contents.missing_parts(&reads_x, "shop", &config).is_empty());
        let nothing = KnownContents::default();
        assert!(!is_unaffected(&nothing, &reads_y));
        let missing: BTreeSet<&str> =
            nothing.missing_parts(&reads_x, "shop", &config).iter().map(|part| part.digest.as_str()).collect();
        assert_eq!(missing.len(), 2);
        assert!(nothing.missing_parts(&reads_x, "other", &config).is_empty());
        assert!(!contents.is_unaffected(&reads_y, "shop", status, None), "it is not known what is replaced");
        let with_secret = ConfigUses { secrets: ["shop".to_owned()].into(), ..reads_y.clone() };
        assert!(is_unaffected(&contents, &with_secret), "no Secret is published");
        let mut published = status.clone();
        published.published_secret_version = Some("new".to_owned());
        assert!(!contents.is_unaffected(&with_secret, "shop", &published, Some("old")), "Secrets are not compared");
        let all = ConfigUses { config_maps: [("shop".to_owned(), ReadKeys::All)].into(), ..ConfigUses::default() };
        assert!(!is_unaffected(&contents, &all) && nothing.missing_parts(&all, "shop", &config).is_empty());
    }

    #[test]
    fn other_content_than_what_was_sealed_is_not_known() {
        let values = BTreeMap::from([("x".to_owned(), b"1".to_vec())]);
        let (config, _) = moved(&values, &values);
        let mut contents = KnownContents::default();
        contents.add(&config.status.as_ref().unwrap().versions[0].parts[0], &Contents::new());
        assert_eq!(contents, KnownContents::default());
    }

    proptest! {
        #[test]
        fn a_move_affects_exactly_those_who_read_a_key_that_changes(
            old in btree_map("[a-d]", prop::collection::vec(any::<u8>(), 0..2), 0..4),
            new in btree_map("[a-d]", prop::collection::vec(any::<u8>(), 0..2), 0..4),
            keys in btree_set("[a-d]", 1..4),
        ) {
            let (config, contents) = moved(&old, &new);
            let is_unaffected =
                contents.is_unaffected(&uses(&keys), "shop", config.status.as_ref().unwrap(), Some("old"));
            prop_assert_eq!(is_unaffected, keys.iter().all(|key| old.get(key) == new.get(key)));
        }
    }
}
