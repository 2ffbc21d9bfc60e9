//! The contents of parts, as far as restarts depend on single keys: a digest of each value. That of a Secret's value
//! has a key, because it becomes part of an annotation of templates.

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
use crate::versions::{Contents, Seals};

/// A part of a sealed version.
#[derive(Clone, Copy, Debug)]
pub struct SealedPart<'a> {
    /// The name of the version.
    pub version: &'a str,
    /// The number of the part, from 1.
    pub number: usize,
    /// The object, as it was sealed.
    pub object: &'a PartStatus,
}

/// The digests of the values of parts, by the sealed digests of the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownContents(HashMap<String, Arc<BTreeMap<String, String>>>);

impl KnownContents {
    /// Adds the content of a part, if it is what was sealed.
    pub fn add(&mut self, part: SealedPart<'_>, content: &Contents, seals: &Seals) {
        let SealedPart { version, number, object } = part;
        if seals.is_sealed(&object.digest, version, number, content) {
            let of_value = |(key, value): (&String, &[u8])| match object.kind {
                PartKind::ConfigMap => hex(&digest(&SHA256, value).as_ref()[..16]),
                PartKind::Secret => seals.value_digest(key, value),
            };
            let digests = content.iter().map(|(key, value)| (key.clone(), of_value((key, value)))).collect();
            self.0.insert(object.digest.clone(), Arc::new(digests));
        }
    }

    /// Returns the digests of these keys in the parts of a version that are of this kind; `None` if a part is not
    /// known. A key that the version lacks is written alone.
    pub(super) fn named(
        &self,
        version: &VersionStatus,
        kind: PartKind,
        keys: &BTreeSet<String>,
    ) -> Option<Vec<String>> {
        let parts = version.parts.iter().filter(|part| part.kind == kind);
        let parts: Vec<_> = parts.map(|part| self.0.get(&part.digest)).collect::<Option<_>>()?;
        let named = |key: &String| match parts.iter().find_map(|part| part.get(key)) {
            Some(digest) => format!("{key}={digest}"),
            None => key.clone(),
        };
        Some(keys.iter().map(named).collect())
    }

    /// Returns the parts to read, so that it is known what pods with these uses read of this config by single keys.
    pub fn missing_parts<'a>(&self, uses: &ConfigUses, name: &str, config: &'a VersionedConfig) -> Vec<SealedPart<'a>> {
        let Some(status) = &config.status else { return Vec::new() };
        let is_compared = |kind: PartKind| matches!(uses.keys_of(kind, name), Some(ReadKeys::Named(_)));
        let published = [&status.published_version, &status.published_secret_version, &status.target_version];
        let mut names: BTreeSet<&str> = published.into_iter().flatten().map(String::as_str).collect();
        if let Some(replaced) = &status.current_version {
            names.extend(PartKind::ALL.into_iter().flat_map(|kind| start_versions(config, kind, replaced)));
        }
        let versions = status.versions.iter().filter(|version| names.contains(&*version.version));
        let parts = versions.flat_map(|version| {
            let parts = version.parts.iter().zip(1..);
            parts.map(|(object, number)| SealedPart { version: &version.version, number, object })
        });
        parts.filter(|part| is_compared(part.object.kind) && !self.0.contains_key(&part.object.digest)).collect()
    }

    /// Returns whether a move changes nothing that pods read which were never restarted: they read single keys of the
    /// published objects, and these have the same values in the published version and in those that the pods may have
    /// started with. `replaced` is the version that the move replaces.
    pub fn is_unaffected(
        &self,
        uses: &ConfigUses,
        name: &str,
        config: &VersionedConfig,
        replaced: Option<&str>,
    ) -> bool {
        let Some(status) = &config.status else { return false };
        let Some(replaced) = replaced.filter(|_| !has_older_processes(status) && !uses.configs.contains(name)) else {
            return false;
        };
        // An object that does not hold a version brings none.
        let read = |kind: PartKind| Some((kind, uses.keys_of(kind, name)?, kind.published_version(status)?));
        let is_same = |(kind, keys, published): (PartKind, &ReadKeys, &str)| {
            let ReadKeys::Named(keys) = keys else { return false };
            let named = |version: &str| self.named(status.version(version)?, kind, keys);
            let published = named(published);
            published.is_some()
                && start_versions(config, kind, replaced).into_iter().all(|version| published == named(version))
        };
        let mut objects = PartKind::ALL.into_iter().filter_map(read).peekable();
        objects.peek().is_some() && objects.all(is_same)
    }
}

/// Returns the versions that pods may have started with which were never restarted: the one that the move replaces; and
/// if the object did not hold it as long as it was current, those that were current before.
fn start_versions<'a>(config: &'a VersionedConfig, kind: PartKind, replaced: &'a str) -> BTreeSet<&'a str> {
    let Some(status) = &config.status else { return BTreeSet::new() };
    let releases = status.releases.iter().filter(|release| release.outcome == Some(ReleaseOutcome::Current));
    let current_since = releases.clone().rfind(|release| release.version == replaced);
    let current_since = current_since.and_then(|release| release.end_time.as_ref());
    // The text of an object is never behind its config.
    let published = find_condition(&status.conditions, kind.condition()).filter(|_| !config.spec.follows_text());
    // Both times are whole seconds.
    let was_behind = current_since.zip(published).is_some_and(|(since, is)| is.last_transition_time.0 >= since.0);
    let earlier = releases.filter(|_| was_behind).map(|release| release.version.as_str());
    earlier.filter(|version| status.version(version).is_some()).chain([replaced]).collect()
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

#[cfg(test)]
pub(super) mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::{Reason, Release, condition, set_condition};
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;
    use crate::versions::{part_digest, seals};

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
            let part = SealedPart { version: &version.version, number: 1, object: &version.parts[0] };
            contents.add(part, &content(values), &seals());
        }
        (config, contents)
    }

    /// Returns the same of two versions of a Secret.
    fn moved_secret(
        old: &BTreeMap<String, Vec<u8>>,
        new: &BTreeMap<String, Vec<u8>>,
    ) -> (VersionedConfig, KnownContents) {
        let (mut config, mut contents) = moved(old, new);
        let status = config.status.as_mut().unwrap();
        (status.published_version, status.published_secret_version) = (None, Some("new".to_owned()));
        for (version, values) in status.versions.iter_mut().zip([old, new]) {
            let keyed = part_digest(&content(values), Some(seals().content_key()));
            version.parts[0].kind = PartKind::Secret;
            version.parts[0].digest = seals().seal(&version.version, 1, &keyed);
            let part = SealedPart { version: &version.version, number: 1, object: &version.parts[0] };
            contents.add(part, &content(values), &seals());
        }
        (config, contents)
    }

    fn secret_uses(keys: &BTreeSet<String>) -> ConfigUses {
        let objects = [((PartKind::Secret, "shop".to_owned()), ReadKeys::Named(keys.clone()))].into();
        ConfigUses { objects, ..ConfigUses::default() }
    }

    pub(crate) fn uses(keys: &BTreeSet<String>) -> ConfigUses {
        let objects = [((PartKind::ConfigMap, "shop".to_owned()), ReadKeys::Named(keys.clone()))].into();
        ConfigUses { objects, ..ConfigUses::default() }
    }

    #[test]
    fn what_is_not_known_is_read_and_counts_as_changed() {
        let values = BTreeMap::from([("x".to_owned(), b"1".to_vec())]);
        let (config, contents) = moved(&values, &BTreeMap::new());
        let (reads_x, reads_y) = (uses(&["x".to_owned()].into()), uses(&["y".to_owned()].into()));
        let is_unaffected =
            |contents: &KnownContents, uses: &ConfigUses| contents.is_unaffected(uses, "shop", &config, Some("old"));
        assert!(is_unaffected(&contents, &reads_y) && !is_unaffected(&contents, &reads_x));
        assert!(contents.missing_parts(&reads_x, "shop", &config).is_empty());
        let nothing = KnownContents::default();
        assert!(!is_unaffected(&nothing, &reads_y));
        let missing: BTreeSet<&str> =
            nothing.missing_parts(&reads_x, "shop", &config).iter().map(|part| part.object.digest.as_str()).collect();
        assert_eq!(missing.len(), 2);
        assert!(nothing.missing_parts(&reads_x, "other", &config).is_empty());
        assert!(!contents.is_unaffected(&reads_y, "shop", &config, None), "it is not known what is replaced");
        let reads_y_and = |keys: ReadKeys| {
            let mut uses = reads_y.clone();
            uses.objects.insert((PartKind::Secret, "shop".to_owned()), keys);
            uses
        };
        let with_secret = reads_y_and(ReadKeys::Named(["y".to_owned()].into()));
        assert!(is_unaffected(&contents, &with_secret), "no Secret is published");
        let mut published = config.clone();
        published.status.as_mut().unwrap().published_secret_version = Some("new".to_owned());
        assert!(contents.is_unaffected(&with_secret, "shop", &published, Some("old")), "no version has a Secret");
        let whole_secret = reads_y_and(ReadKeys::All);
        assert!(!contents.is_unaffected(&whole_secret, "shop", &published, Some("old")), "all keys count");
        let all = [((PartKind::ConfigMap, "shop".to_owned()), ReadKeys::All)].into();
        let all = ConfigUses { objects: all, ..ConfigUses::default() };
        assert!(!is_unaffected(&contents, &all) && nothing.missing_parts(&all, "shop", &config).is_empty());
    }

    #[test]
    fn other_content_than_what_was_sealed_is_not_known() {
        let values = BTreeMap::from([("x".to_owned(), b"1".to_vec())]);
        let (config, _) = moved(&values, &values);
        let mut contents = KnownContents::default();
        let object = &config.status.as_ref().unwrap().versions[0].parts[0];
        contents.add(SealedPart { version: "old", number: 1, object }, &Contents::new(), &seals());
        assert_eq!(contents, KnownContents::default());
    }

    #[test]
    fn a_secret_that_is_not_known_counts_as_changed() {
        let values = BTreeMap::from([("x".to_owned(), b"1".to_vec())]);
        let (config, contents) = moved_secret(&values, &values);
        let uses = secret_uses(&["x".to_owned()].into());
        assert!(contents.is_unaffected(&uses, "shop", &config, Some("old")));
        assert!(!KnownContents::default().is_unaffected(&uses, "shop", &config, Some("old")));
        let sealed = &contents.0[&config.status.as_ref().unwrap().versions[0].parts[0].digest];
        assert_eq!(sealed["x"], seals().value_digest("x", b"1"), "a digest without a key lets others guess the value");
    }

    #[test]
    fn pods_may_have_started_with_an_earlier_version_if_the_object_was_behind() {
        let values = |x: &str| BTreeMap::from([("x".to_owned(), x.as_bytes().to_vec())]);
        let (mut config, mut contents) = moved_secret(&values("2"), &values("2"));
        let uses = secret_uses(&["x".to_owned()].into());
        let status = config.status.as_mut().unwrap();
        // The version before `old` has another value, and its parts are read as well.
        let mut oldest = VersionStatus { version: "oldest".to_owned(), ..status.versions[0].clone() };
        oldest.parts[0].digest =
            seals().seal("oldest", 1, &part_digest(&content(&values("1")), Some(seals().content_key())));
        status.versions.insert(0, oldest.clone());
        status.current_version = Some("old".to_owned());
        let at = |second: i64| Time(Timestamp::from_second(second).unwrap());
        for (second, version) in [(1, "pruned"), (11, "oldest"), (21, "old")] {
            let mut release = Release::new(version, None, at(second));
            (release.end_time, release.outcome) = (Some(at(second + 5)), Some(ReleaseOutcome::Current));
            status.releases.push(release);
        }
        let published = |config: &VersionedConfig, second: i64| {
            let mut config = config.clone();
            let (kind, reason) = (ConditionType::SecretPublished, Reason::Published);
            let condition = condition(kind, true, reason, "m", None, &at(second));
            set_condition(&mut config.status.as_mut().unwrap().conditions, condition);
            config
        };
        let (in_time, late) = (published(&config, 25), published(&config, 26));
        assert!(contents.is_unaffected(&uses, "shop", &in_time, Some("old")));
        assert!(contents.missing_parts(&uses, "shop", &in_time).is_empty());
        assert!(!contents.is_unaffected(&uses, "shop", &late, Some("old")), "the oldest one is not known");
        let missing = contents.missing_parts(&uses, "shop", &late);
        assert_eq!(missing.iter().map(|part| part.version).collect::<Vec<_>>(), ["oldest"]);
        contents.add(missing[0], &content(&values("1")), &seals());
        assert!(!contents.is_unaffected(&uses, "shop", &late, Some("old")), "the pods may have the value 1");
        let mut follows = late.clone();
        (follows.spec.version, follows.spec.objects) = (None, vec![PartKind::Secret]);
        assert!(contents.is_unaffected(&uses, "shop", &follows, Some("old")), "the Secret was the text");
        let y = secret_uses(&["y".to_owned()].into());
        assert!(contents.is_unaffected(&y, "shop", &late, Some("old")), "it was never there");
    }

    proptest! {
        #[test]
        fn a_move_affects_exactly_those_who_read_a_key_that_changes(
            old in btree_map("[a-d]", prop::collection::vec(any::<u8>(), 0..2), 0..4),
            new in btree_map("[a-d]", prop::collection::vec(any::<u8>(), 0..2), 0..4),
            keys in btree_set("[a-d]", 1..4),
        ) {
            let (config, contents) = moved(&old, &new);
            let is_unaffected = contents.is_unaffected(&uses(&keys), "shop", &config, Some("old"));
            let expected = keys.iter().all(|key| old.get(key) == new.get(key));
            prop_assert_eq!(is_unaffected, expected);
            let (config, contents) = moved_secret(&old, &new);
            prop_assert_eq!(contents.is_unaffected(&secret_uses(&keys), "shop", &config, Some("old")), expected);
        }
    }
}
