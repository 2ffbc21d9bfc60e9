//! The workloads that read the objects of a config themselves. They see a text before its version is judged, and take
//! no part in its steps.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, DirectReaders, PartKind, Reason, VersionedConfig, VersionedConfigStatus, condition, set_condition,
};

use crate::event_record::EventRecord;
use crate::owners::WorkloadId;
use crate::pods::direct_references;

/// The maximum number of workloads of an object that the status names.
const MAX_NAMED_WORKLOADS: usize = 3;

/// A workload, with the ConfigMaps and Secrets that its pods read themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectReader {
    workload: String,
    references: BTreeSet<(PartKind, String)>,
}

impl DirectReader {
    /// Returns the workload of the pod with what the pod reads itself; `None` if it reads nothing, or does not run.
    pub fn of(pod: &Pod) -> Option<Self> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let references = direct_references(pod.spec.as_ref()?);
        if references.is_empty() || phase != Some("Running") {
            return None;
        }
        let bare = || format!("Pod/{}", pod.metadata.name.as_deref().unwrap_or_default());
        let workload = WorkloadId::of(&pod.metadata).map_or_else(bare, |id| id.to_string());
        Some(Self { workload, references })
    }
}

/// Returns the workloads that read the objects of the config, for each object that has any.
pub fn direct_readers(config: &VersionedConfig, readers: &[DirectReader]) -> Vec<DirectReaders> {
    let name = config.metadata.name.clone().unwrap_or_default();
    let of_object = |kind: &PartKind| {
        let object = (*kind, name.clone());
        let readers = readers.iter().filter(|reader| reader.references.contains(&object));
        let workloads: BTreeSet<&String> = readers.map(|reader| &reader.workload).collect();
        let total = u32::try_from(workloads.len()).unwrap_or(u32::MAX);
        let workloads = workloads.into_iter().take(MAX_NAMED_WORKLOADS).cloned().collect();
        (total > 0).then_some(DirectReaders { kind: *kind, total, workloads })
    };
    config.spec.objects.iter().filter_map(of_object).collect()
}

/// Returns the status that names these readers, with the Event about the first of them.
pub fn record_readers(
    config: &VersionedConfig,
    readers: Vec<DirectReaders>,
    now: &Time,
) -> (VersionedConfigStatus, Option<EventRecord>) {
    let mut status = config.status.clone().unwrap_or_default();
    if readers.is_empty() {
        forget_readers(&mut status);
        return (status, None);
    }
    let message = format!(
        "{}, which see a text before its version is judged; let an agent serve their files, or name versions in spec.version",
        readings(config, &readers)
    );
    let event = status.internal.readers.is_empty().then(|| EventRecord::new(Reason::UnstagedReaders, message.as_str()));
    let (kind, generation) = (ConditionType::UnstagedReaders, config.metadata.generation);
    set_condition(&mut status.conditions, condition(kind, true, Reason::UnstagedReaders, message, generation, now));
    status.internal.readers = readers;
    (status, event)
}

/// Removes the readers, because there are none, or the objects do not get a text any more.
pub(super) fn forget_readers(status: &mut VersionedConfigStatus) {
    status.internal.readers.clear();
    status.conditions.retain(|condition| condition.type_ != ConditionType::UnstagedReaders.as_str());
}

/// Returns who reads the objects of the config, such as `ConfigMap web is read directly by Deployment/api`.
pub(super) fn readings<'a>(config: &VersionedConfig, readers: impl IntoIterator<Item = &'a DirectReaders>) -> String {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let reading = |readers: &DirectReaders| format!("{} {name} is read directly by {readers}", readers.kind);
    readers.into_iter().map(reading).collect::<Vec<_>>().join(", and ")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::find_condition;
    use serde_json::{Value, json};

    use super::*;

    fn config(objects: &[PartKind]) -> VersionedConfig {
        let spec = nudge_api::VersionedConfigSpec { objects: objects.to_vec(), ..Default::default() };
        VersionedConfig::new("web", spec)
    }

    /// A pod of this Deployment that reads the object by this source of variables.
    fn pod(deployment: Option<&str>, source: &Value, phase: &str) -> Option<DirectReader> {
        let owner = deployment.map(|name| {
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-7d"), "uid": "r", "controller": true}])
        });
        let pod = json!({
            "metadata": {"name": "a", "labels": {"pod-template-hash": "7d"}, "ownerReferences": owner},
            "spec": {"containers": [{"name": "app", "envFrom": [source]}]}, "status": {"phase": phase},
        });
        DirectReader::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn the_workloads_of_pods_that_read_an_object_of_the_config_are_counted_once() {
        let map = json!({"configMapRef": {"name": "web"}});
        let secret = json!({"secretRef": {"name": "web"}});
        assert_eq!(pod(None, &map, "Succeeded"), None);
        assert_eq!(pod(None, &map, "Pending"), None);
        let mut readers = vec![
            pod(Some("api"), &map, "Running").unwrap(),
            pod(Some("api"), &map, "Running").unwrap(),
            pod(None, &secret, "Running").unwrap(),
            pod(Some("other"), &json!({"configMapRef": {"name": "other"}}), "Running").unwrap(),
        ];
        let names = |readers: &[DirectReader], objects: &[PartKind]| {
            let config = config(objects);
            readings(&config, &direct_readers(&config, readers))
        };
        let (of_map, of_secret) =
            ("ConfigMap web is read directly by Deployment/api", "Secret web is read directly by Pod/a");
        assert_eq!(names(&readers, &[PartKind::ConfigMap]), of_map);
        assert_eq!(names(&readers, &[PartKind::Secret]), of_secret);
        assert_eq!(names(&readers, &[PartKind::ConfigMap, PartKind::Secret]), format!("{of_map}, and {of_secret}"));
        assert_eq!(
            names(&readers[2..], &[PartKind::ConfigMap, PartKind::Secret]),
            of_secret,
            "each object has its own"
        );
        assert_eq!(names(&readers[3..], &[PartKind::ConfigMap]), "");
        readers.extend((0..6).filter_map(|number| pod(Some(&format!("w{number}")), &map, "Running")));
        let named = names(&readers, &[PartKind::ConfigMap]);
        let more = ", Deployment/w0, Deployment/w1 and 4 more";
        assert_eq!(named, format!("{of_map}{more}"));
    }

    #[test]
    fn readers_stand_in_a_condition_while_there_are_any() {
        let mut config = config(&[PartKind::ConfigMap, PartKind::Secret]);
        let now = Time(Timestamp::UNIX_EPOCH);
        let workloads = vec!["Deployment/api".to_owned()];
        let readers = vec![DirectReaders { kind: PartKind::Secret, total: 1, workloads }];
        let (status, event) = record_readers(&config, readers.clone(), &now);
        let message = &find_condition(&status.conditions, ConditionType::UnstagedReaders).unwrap().message;
        assert!(message.starts_with("Secret web is read directly by Deployment/api, which see a text"), "{message}");
        assert!(event.is_some_and(|event| !event.warning));
        config.status = Some(status.clone());
        assert_eq!(record_readers(&config, readers, &now), (status, None), "it is said once");
        let (status, _) = record_readers(&config, Vec::new(), &now);
        assert_eq!((status.internal.readers, status.conditions.len()), (Vec::new(), 0));
    }
}
