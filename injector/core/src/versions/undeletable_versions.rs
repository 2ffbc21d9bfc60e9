//! The versions that the history limit can't delete, because pods or templates of workloads name their objects.

use std::sync::Arc;

use nudge_api::VersionedConfig;

use super::history_limit::may_prune;
use super::version_room::is_nearly_full;
use crate::keys::PartMeta;
use crate::pods::{ObjectReferrers, PodState};

/// The maximum number of versions that a message names.
const MAX_NAMED_VERSIONS: usize = 8;

/// Returns which versions of a history that is nearly full can't be deleted, and who holds them; `None` if the history
/// has room, or nobody holds a version that would be deleted otherwise.
pub fn undeletable_versions(
    config: &VersionedConfig,
    parts: &[Arc<PartMeta>],
    pods: &[Arc<PodState>],
    named: &ObjectReferrers,
) -> Option<String> {
    config.status.as_ref().filter(|status| is_nearly_full(status))?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let held: Vec<String> = may_prune(config, parts, None)
        .into_iter()
        .filter_map(|version| {
            let objects = version.parts.iter().map(|part| (part.kind, part.name.clone()));
            let holder = objects.clone().find_map(|object| named.get(&object).cloned()).or_else(|| {
                let uses = |pod: &&Arc<PodState>| {
                    pod.runs(name).is_some_and(|runs| runs.as_str() == version.version)
                        || objects.clone().any(|object| pod.references.contains(&object))
                };
                pods.iter().find(uses).map(|pod| format!("Pod {}", pod.name))
            })?;
            Some(format!("{holder} holds version {}", version.version))
        })
        .collect();
    let more = held.len().saturating_sub(MAX_NAMED_VERSIONS);
    let more = if more > 0 { format!(", and {more} more are held") } else { String::new() };
    let named = held.get(..MAX_NAMED_VERSIONS).unwrap_or(&held).join(", ");
    (!held.is_empty()).then(|| {
        format!(
            "{named}{more}; delete these, lower revisionHistoryLimit of their Deployments, or pin newer versions there"
        )
    })
}

#[cfg(test)]
mod tests {
    use nudge_api::PartKind;
    use serde_json::json;

    use super::super::seal_check::tests::part;
    use super::*;

    /// Creates a config with this many versions, which the history limit may delete.
    fn config(count: usize) -> (VersionedConfig, Vec<Arc<PartMeta>>) {
        let part = |number: usize| PartMeta {
            prune: true,
            ..part(PartKind::ConfigMap, &format!("shop-{number}"), &number.to_string())
        };
        let parts: Vec<_> = (0..count).map(|number| Arc::new(part(number))).collect();
        let version = |part: &Arc<PartMeta>| {
            let object = json!({"kind": "ConfigMap", "name": part.name, "uid": part.uid, "digest": "d"});
            json!({"version": part.version, "state": "Available", "digest": "d", "parts": [object], "keys": 1, "bytes": 1})
        };
        let versions: Vec<_> = parts.iter().map(version).collect();
        let config = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": {"historyLimit": 0}, "status": {"versions": versions},
        });
        (serde_json::from_value(config).unwrap(), parts)
    }

    fn holders(maps: &[&str]) -> ObjectReferrers {
        let holder = |map: &&str| ((PartKind::ConfigMap, (*map).to_owned()), "ReplicaSet web-5d8".to_owned());
        maps.iter().map(holder).collect()
    }

    #[test]
    fn a_full_history_names_who_holds_versions() {
        let (full, parts) = config(45);
        let named = holders(&["shop-0", "other"]);
        let pod = PodState {
            name: "web-1".to_owned(),
            references: [(PartKind::ConfigMap, "shop-3".to_owned())].into(),
            ..PodState::default()
        };
        let message = undeletable_versions(&full, &parts, &[Arc::new(pod)], &named).unwrap();
        assert!(message.starts_with("ReplicaSet web-5d8 holds version 0, Pod web-1 holds version 3; "), "{message}");
        assert_eq!(undeletable_versions(&full, &parts, &[], &ObjectReferrers::new()), None, "nobody holds one");
        let (roomy, parts) = config(40);
        assert_eq!(undeletable_versions(&roomy, &parts, &[], &holders(&["shop-0"])), None, "there is room");
    }

    #[test]
    fn a_message_names_few_versions() {
        let (full, parts) = config(45);
        let maps: Vec<String> = (0..20).map(|number| format!("shop-{number}")).collect();
        let maps: Vec<&str> = maps.iter().map(String::as_str).collect();
        let message = undeletable_versions(&full, &parts, &[], &holders(&maps)).unwrap();
        assert!(message.contains("holds version 7, and 12 more are held; "), "{message}");
        assert!(!message.contains("version 8"), "{message}");
    }

    #[test]
    fn a_version_in_use_needs_no_holder() {
        let (mut full, parts) = config(45);
        full.status.as_mut().unwrap().current_version = Some("0".to_owned());
        assert_eq!(undeletable_versions(&full, &parts, &[], &holders(&["shop-0"])), None);
    }
}
