//! The versions that the history limit deletes: only those created by `kubectl nudge` and sources, and none that may
//! still be needed. Two kinds of versions are deleted regardless of the limit: Secret versions of a source whose Secret
//! has long been gone, and versions that were never sealed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use nudge_api::{PartKind, PartStatus, VersionState, VersionStatus, VersionedConfig};
use nudge_protocol::VersionName;

use super::digest_names::{digest_prefix, is_of_text};
use crate::keys::PartMeta;
use crate::pods::{ObjectReferrers, PodState};

/// The minimum age difference between two versions of a source that shows that nobody will seal the older version. A
/// version takes far less time from its first object to its seal.
const MIN_SUPERSEDED_SECONDS: i64 = 600;

/// The maximum number of versions of texts that are neither sealed nor refused: somebody may write text after text.
const MAX_UNSEALED_TEXTS: usize = 5;

/// Returns the versions to delete, oldest first, with their objects. `last` is the last version of a source whose
/// Secret has long been gone. `named` are the objects that pods and workloads' templates name.
pub fn to_prune(
    config: &VersionedConfig,
    parts: &[Arc<PartMeta>],
    last: Option<&str>,
    pods: &[Arc<PodState>],
    named: &ObjectReferrers,
) -> Vec<(String, Vec<PartStatus>)> {
    let refused = never_sealed(config, parts);
    let mut free = may_prune(config, parts, last);
    let mut refused: Vec<&VersionStatus> = refused.iter().collect();
    if !refused.is_empty() || !surplus(config, parts, last, &free).is_empty() {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let running: HashSet<&str> = pods.iter().filter_map(|pod| pod.runs(name)).map(VersionName::as_str).collect();
        let mounted: HashSet<&(PartKind, String)> =
            pods.iter().flat_map(|pod| &pod.references).chain(named.keys()).collect();
        let is_mounted = |part: &PartStatus| mounted.contains(&(part.kind, part.name.clone()));
        let is_used = |version: &VersionStatus| {
            running.contains(version.version.as_str()) || version.parts.iter().any(is_mounted)
        };
        free.retain(|sealed| !is_used(sealed));
        // A version that gave way was sealed once.
        refused.retain(|version| !is_used(version));
    }
    let surplus = refused.into_iter().chain(surplus(config, parts, last, &free));
    surplus.map(|sealed| (sealed.version.clone(), sealed.parts.clone())).collect()
}

/// Returns the versions beyond the limit, because newer ones of the same maker fill it. Versions of sources have a
/// limit of their own.
fn surplus<'a>(
    config: &VersionedConfig,
    parts: &[Arc<PartMeta>],
    last: Option<&str>,
    free: &[&'a VersionStatus],
) -> Vec<&'a VersionStatus> {
    let keep_counts: HashMap<(PartKind, &str), Option<u32>> =
        parts.iter().map(|object| ((object.kind, object.name.as_str()), object.keep)).collect();
    let mut newer: HashMap<bool, usize> = HashMap::new();
    let mut surplus = Vec::new();
    for sealed in free.iter().rev() {
        let keep =
            sealed.parts.iter().find_map(|part| keep_counts.get(&(part.kind, part.name.as_str())).copied().flatten());
        let has_secret = sealed.parts.iter().any(|part| part.kind == PartKind::Secret);
        let is_surplus = keep.is_some() && has_secret && last.is_some_and(|last| last != sealed.version);
        let newer = newer.entry(keep.is_some()).or_default();
        if is_surplus || *newer >= keep.unwrap_or(config.spec.history_limit) as usize {
            surplus.push(*sealed);
        }
        *newer += 1;
    }
    surplus.reverse();
    surplus
}

/// Returns whether there may be something to prune, regardless of the versions that pods use.
pub fn is_beyond_limit(config: &VersionedConfig, parts: &[Arc<PartMeta>], last: Option<&str>) -> bool {
    !surplus(config, parts, last, &may_prune(config, parts, last)).is_empty() || !never_sealed(config, parts).is_empty()
}

/// Returns the versions of sources and texts that will never be sealed: because they break a rule, or because newer
/// versions exist while nobody can judge them. The newest version that breaks a rule stays, because the source does not
/// make it again while it is known.
fn never_sealed(config: &VersionedConfig, parts: &[Arc<PartMeta>]) -> Vec<VersionStatus> {
    let invalid = config.status.iter().flat_map(|status| &status.invalid);
    let mut names: Vec<&str> =
        invalid.map(|invalid| invalid.version.as_str()).filter(|version| digest_prefix(version).is_some()).collect();
    names.pop();
    names.extend(superseded(config, parts));
    names.retain(|version| config.requested_version() != Some(version));
    let version = |version: &str| {
        let own = parts.iter().filter(|part| part.version == version && part.prune);
        let parts = own.map(|part| PartStatus {
            kind: part.kind,
            name: part.name.clone(),
            uid: part.uid.clone(),
            digest: String::new(),
        });
        VersionStatus {
            version: version.to_owned(),
            state: VersionState::Broken,
            digest: String::new(),
            parts: parts.collect(),
            keys: 0,
            bytes: 0,
            seal_time: None,
            consent: None,
        }
    };
    names.into_iter().map(version).filter(|refused| !refused.parts.is_empty()).collect()
}

/// Returns the versions of sources and texts that are neither sealed nor refused although another such version was made
/// long after them, or several texts since, oldest first.
fn superseded<'a>(config: &VersionedConfig, parts: &'a [Arc<PartMeta>]) -> Vec<&'a str> {
    let Some(status) = &config.status else { return Vec::new() };
    let mut made: BTreeMap<&str, i64> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.prune && digest_prefix(&part.version).is_some()) {
        let last = made.entry(&part.version).or_insert(part.created);
        *last = part.created.max(*last);
    }
    made.retain(|version, _| {
        status.version(version).is_none() && !status.invalid.iter().any(|invalid| invalid.version == *version)
    });
    let newest = made.values().max().copied().unwrap_or_default();
    let mut old: Vec<(i64, &str)> = made.into_iter().map(|(version, created)| (created, version)).collect();
    old.sort_unstable();
    let texts = old.iter().filter(|(_, version)| is_of_text(version)).count();
    let mut surplus_texts = texts.saturating_sub(MAX_UNSEALED_TEXTS);
    old.retain(|(created, version)| {
        let is_surplus = surplus_texts > 0 && is_of_text(version);
        surplus_texts -= usize::from(is_surplus);
        is_surplus || created.saturating_add(MIN_SUPERSEDED_SECONDS) <= newest
    });
    old.into_iter().map(|(_, version)| version).collect()
}

/// Returns the versions that may be deleted if nobody uses them, oldest first.
pub(super) fn may_prune<'a>(
    config: &'a VersionedConfig,
    parts: &[Arc<PartMeta>],
    last: Option<&str>,
) -> Vec<&'a VersionStatus> {
    let Some(status) = &config.status else { return Vec::new() };
    let least = parts.iter().filter_map(|part| part.keep).chain([config.spec.history_limit]).min().unwrap_or_default();
    if status.versions.len() <= least as usize && last.is_none() {
        return Vec::new();
    }
    let objects: HashMap<(PartKind, &str), &PartMeta> =
        parts.iter().map(|object| ((object.kind, object.name.as_str()), &**object)).collect();
    let is_free = |sealed: &&VersionStatus| {
        let version = &sealed.version;
        // If a version was deleted in part, its remaining objects count.
        let mut left = sealed
            .parts
            .iter()
            .filter_map(|part| objects.get(&(part.kind, part.name.as_str())).filter(|object| object.uid == part.uid));
        let marked = left.clone().next().is_some() && left.all(|object| object.prune);
        marked && !status.is_in_use(version) && config.requested_version() != Some(version)
    };
    status.versions.iter().filter(is_free).collect()
}

#[cfg(test)]
mod tests {
    use nudge_api::{InvalidVersion, Reason, VersionedConfigSpec, VersionedConfigStatus};
    use nudge_protocol::ConfigName;

    use super::super::digest_names::{SOURCE_PREFIX, TEXT_PREFIX};
    use super::super::seal_check::tests::part;
    use super::*;
    use crate::pods::{Report, ReportState};

    fn config_with_versions(count: usize, limit: u32) -> (VersionedConfig, Vec<Arc<PartMeta>>) {
        let spec = VersionedConfigSpec { history_limit: limit, ..VersionedConfigSpec::default() };
        let mut config = VersionedConfig::new("shop", spec);
        let objects: Vec<PartMeta> = (0..count)
            .map(|n| PartMeta { prune: true, ..part(PartKind::ConfigMap, &format!("shop-{n}"), &n.to_string()) })
            .collect();
        let versions = objects.iter().map(|object| VersionStatus {
            version: object.version.clone(),
            state: VersionState::Available,
            digest: String::new(),
            parts: vec![PartStatus {
                kind: object.kind,
                name: object.name.clone(),
                uid: object.uid.clone(),
                digest: "d".to_owned(),
            }],
            keys: 1,
            bytes: 1,
            seal_time: None,
            consent: None,
        });
        config.status =
            Some(VersionedConfigStatus { versions: versions.collect(), ..VersionedConfigStatus::default() });
        (config, objects.into_iter().map(Arc::new).collect())
    }

    fn holders(map: &str) -> ObjectReferrers {
        [((PartKind::ConfigMap, map.to_owned()), "Deployment web".to_owned())].into()
    }

    #[test]
    fn what_sources_make_has_a_limit_of_its_own() {
        let (config, mut parts) = config_with_versions(8, 3);
        for at in [1, 3, 5, 7] {
            parts[at] = Arc::new(PartMeta { keep: Some(2), ..(*parts[at]).clone() });
        }
        assert_eq!(names(&to_prune(&config, &parts, None, &[], &BTreeMap::new())), ["0", "1", "3"]);
        let (config, mut parts) = config_with_versions(3, 500);
        parts[0] = Arc::new(PartMeta { keep: Some(0), ..(*parts[0]).clone() });
        assert!(is_beyond_limit(&config, &parts, None));
        assert_eq!(names(&to_prune(&config, &parts, None, &[], &BTreeMap::new())), ["0"]);
    }

    #[test]
    fn older_secrets_of_a_source_that_is_gone_go() {
        let (mut config, mut parts) = config_with_versions(5, 500);
        for (at, part) in parts.iter_mut().enumerate().take(4) {
            let kind = if at == 1 { PartKind::ConfigMap } else { PartKind::Secret };
            *part = Arc::new(PartMeta { kind, keep: Some(300), ..(**part).clone() });
            config.status.as_mut().unwrap().versions[at].parts[0].kind = kind;
        }
        // A person has made this version.
        parts[4] = Arc::new(PartMeta { kind: PartKind::Secret, ..(*parts[4]).clone() });
        config.status.as_mut().unwrap().versions[4].parts[0].kind = PartKind::Secret;
        assert!(!is_beyond_limit(&config, &parts, None) && is_beyond_limit(&config, &parts, Some("3")));
        let pruned = |config: &VersionedConfig| to_prune(config, &parts, Some("3"), &[], &BTreeMap::new());
        assert_eq!(names(&pruned(&config)), ["0", "2"]);
        config.status.as_mut().unwrap().previous_version = Some("2".to_owned());
        assert_eq!(names(&pruned(&config)), ["0"]);
    }

    #[test]
    fn of_texts_that_were_never_sealed_five_stay() {
        let (mut config, mut parts) = config_with_versions(9, 500);
        config.status.as_mut().unwrap().versions.clear();
        for (created, part) in (0..).zip(&mut parts) {
            let prefix = if created == 3 { SOURCE_PREFIX } else { TEXT_PREFIX };
            let version = format!("{prefix}{created}");
            *part = Arc::new(PartMeta { version, created, ..(**part).clone() });
        }
        let pruned = |config: &VersionedConfig| to_prune(config, &parts, None, &[], &BTreeMap::new());
        assert_eq!(names(&pruned(&config)), ["txt-0", "txt-1", "txt-2"], "those of sources have no such bound");
        config.spec.version = Some("txt-0".to_owned());
        assert_eq!(names(&pruned(&config)), ["txt-1", "txt-2"]);
    }

    #[test]
    fn of_the_refused_versions_of_sources_the_newest_stays() {
        let (mut config, mut parts) = config_with_versions(4, 500);
        let status = config.status.as_mut().unwrap();
        status.versions.clear();
        for (at, version) in ["src-1", "src-2", "9", "src-3"].into_iter().enumerate() {
            parts[at] = Arc::new(PartMeta { version: version.to_owned(), keep: Some(3), ..(*parts[at]).clone() });
            let (reason, text) = (Reason::Invalid, String::new());
            let invalid = InvalidVersion {
                version: version.to_owned(),
                reason,
                message: text.clone(),
                rules: text.clone(),
                content: text,
            };
            status.invalid.push(invalid);
        }
        assert!(is_beyond_limit(&config, &parts, None));
        let mounted = holders("shop-1");
        assert_eq!(names(&to_prune(&config, &parts, None, &[], &mounted)), ["src-1"]);
        config.spec.version = Some("src-1".to_owned());
        assert_eq!(names(&to_prune(&config, &parts, None, &[], &BTreeMap::new())), ["src-2"]);
        config.status.as_mut().unwrap().invalid.truncate(1);
        assert!(!is_beyond_limit(&config, &parts, None));
    }

    #[test]
    fn versions_of_sources_that_nobody_judges_do_not_pile_up() {
        let (mut config, mut parts) = config_with_versions(5, 500);
        config.status.as_mut().unwrap().versions.retain(|sealed| sealed.version == "4");
        // One a minute; the newest is as old as can be.
        for (at, created) in [(0, 0), (1, 60), (2, 601), (3, 660)] {
            let version = format!("src-{at}");
            parts[at] = Arc::new(PartMeta { version, keep: Some(3), created, ..(*parts[at]).clone() });
        }
        assert_eq!(names(&to_prune(&config, &parts, None, &[], &BTreeMap::new())), ["src-0", "src-1"]);
        assert!(is_beyond_limit(&config, &parts, None));
        let mounted = holders("shop-0");
        config.spec.version = Some("src-1".to_owned());
        assert!(to_prune(&config, &parts, None, &[], &mounted).is_empty());
        // A version of somebody else, and a version that is sealed meanwhile.
        config.spec.version = None;
        parts[0] = Arc::new(PartMeta { prune: false, ..(*parts[0]).clone() });
        parts.remove(3);
        assert!(!is_beyond_limit(&config, &parts, None));
    }

    #[test]
    fn a_version_of_a_source_that_is_not_sealed_any_more_stays_while_a_pod_runs_it() {
        let (mut config, mut parts) = config_with_versions(2, 500);
        config.status.as_mut().unwrap().versions.clear();
        for (at, created) in [(0, 0), (1, 600)] {
            let version = format!("src-{at}");
            parts[at] = Arc::new(PartMeta { version, keep: Some(3), created, ..(*parts[at]).clone() });
        }
        let runs = |version: &str| {
            let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new(version).ok())];
            let report = Some(Report { versions, state: ReportState::Acknowledged, reasons: Vec::new(), at: None });
            Arc::new(PodState { report, ..PodState::default() })
        };
        let pruned = |version: &str| to_prune(&config, &parts, None, &[runs(version)], &BTreeMap::new());
        assert_eq!(names(&pruned("src-1")), ["src-0"]);
        assert!(pruned("src-0").is_empty());
    }

    fn names(pruned: &[(String, Vec<PartStatus>)]) -> Vec<&str> {
        pruned.iter().map(|(version, _)| version.as_str()).collect()
    }

    #[test]
    fn the_oldest_go_beyond_the_limit() {
        let (config, parts) = config_with_versions(5, 3);
        assert_eq!(names(&to_prune(&config, &parts, None, &[], &BTreeMap::new())), ["0", "1"]);
        let (config, parts) = config_with_versions(3, 3);
        assert!(to_prune(&config, &parts, None, &[], &BTreeMap::new()).is_empty());
    }

    #[test]
    fn what_anybody_may_need_stays() {
        let (mut config, mut parts) = config_with_versions(8, 0);
        config.spec.version = Some("0".to_owned());
        let status = config.status.as_mut().unwrap();
        status.current_version = Some("1".to_owned());
        status.previous_version = Some("2".to_owned());
        status.published_version = Some("3".to_owned());
        let mut unmarked = (*parts[4]).clone();
        unmarked.prune = false;
        parts[4] = Arc::new(unmarked);
        let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new("5").ok())];
        let pod = PodState {
            report: Some(Report { versions, state: ReportState::Acknowledged, reasons: Vec::new(), at: None }),
            references: [(PartKind::ConfigMap, "shop-6".to_owned())].into(),
            ..PodState::default()
        };
        let named = holders("shop-7");
        assert!(to_prune(&config, &parts, None, &[Arc::new(pod)], &named).is_empty());
        assert_eq!(names(&to_prune(&config, &parts, None, &[], &BTreeMap::new())), ["5", "6", "7"]);
    }
}
