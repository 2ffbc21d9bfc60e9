//! A workload that is restarted by its own rolling update.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::Reason;
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

use super::annotations::{
    ContentDigest, DIGEST_ANNOTATION, MARK_ANNOTATION, RestartMark, TemplateFingerprint, annotation,
};
use super::config_uses::{ConfigUses, restart_uses};
use super::object_report::ObjectReport;
use super::probes::{is_unprobed, long_running_containers};
use crate::owners::{WorkloadId, WorkloadKind, controlling_owner};

/// The progress of a workload's own rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadProgress {
    /// All pods have the present template and are available.
    Complete,
    /// The workload's controller says that all pods came up with the present template, although some are not available
    /// now.
    Ended,
    /// Some pods do not have the present template yet, or are not available.
    Moving,
    /// The workload's controller has given up.
    Failed,
}

/// The numbers of a workload's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// The number of pods that the workload should have, or the number that it has, if larger.
    pub total: i32,
    /// The number of pods with the present template.
    pub updated: i32,
    /// The number of pods that are Ready.
    pub ready: i32,
    /// The number of pods that are available.
    pub available: i32,
}

impl ReplicaCounts {
    fn up(self) -> i32 {
        self.ready.saturating_add(self.available)
    }

    /// Returns the number of pods with an older template.
    pub(super) fn outdated(self) -> usize {
        usize::try_from(self.total.saturating_sub(self.updated)).unwrap_or(0)
    }

    /// Returns the number of available pods, if all pods have the present template.
    pub(super) fn available_if_updated(self) -> Option<i32> {
        (self.updated >= self.total).then_some(self.available)
    }

    /// Returns the finished part of the rollout: the number of new pods, then a measure of pods that are up. The result
    /// grows when the workload is scaled up.
    pub(super) fn done(self) -> (i32, i32) {
        (self.updated, self.up())
    }

    /// Returns the remaining part of the rollout, in the same measures. The result shrinks when the workload is scaled
    /// down.
    pub(super) fn left(self) -> (i32, i32) {
        (self.total.saturating_sub(self.updated), self.total.saturating_mul(2).saturating_sub(self.up()))
    }
}

/// The number of restarts of containers in pods with the present digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodRestarts {
    /// The number in the pod with the most restarts.
    pub max: i32,
    /// The number in the pod with the second most restarts.
    pub second: i32,
    /// The number in all pods.
    pub total: i32,
}

impl PodRestarts {
    /// Adds the restarts of one pod's containers.
    pub fn add(&mut self, restarts: i32) {
        self.second = self.second.max(self.max.min(restarts));
        self.max = self.max.max(restarts);
        self.total = self.total.saturating_add(restarts);
    }
}

/// The reason why the pods of a workload do not follow the template by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateBlock {
    /// The Deployment is paused.
    Paused,
    /// The update strategy is OnDelete.
    OnDelete,
    /// The StatefulSet has a partition.
    Partition,
}

impl UpdateBlock {
    /// Returns the report about the workload with this id.
    pub(super) fn report(self, id: &WorkloadId) -> ObjectReport {
        let (reason, state) = match self {
            Self::Paused => (Reason::Paused, "is paused; its pods are replaced when it is resumed"),
            Self::OnDelete => (Reason::OnDelete, "has the update strategy OnDelete; delete its pods to restart them"),
            Self::Partition => (Reason::Partition, "has a partition; pods below it are not restarted"),
        };
        ObjectReport::new(reason, id, format!("{id} {state}"))
    }
}

/// The facts about a workload that a restart needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Whether the workload is a Deployment, a StatefulSet or a DaemonSet.
    pub kind: WorkloadKind,
    /// The name of the workload.
    pub name: String,
    /// The uid of the workload: another object may get the same name.
    pub uid: String,
    /// The configs that require restarts of the workload's pods.
    pub uses: ConfigUses,
    /// The digest of the content that its pods started with.
    pub digest: Option<ContentDigest>,
    /// The mark of the last restart by Nudge.
    pub last_mark: Option<RestartMark>,
    /// The controlling owner, such as `Prometheus/main`, which writes the template.
    pub owner: Option<String>,
    /// The reason why the pods do not follow the template by themselves, if they do not.
    pub update_block: Option<UpdateBlock>,
    /// The progress of the workload's rollout.
    pub progress: WorkloadProgress,
    /// The numbers of its pods; `None` while they describe an older template.
    pub replicas: Option<ReplicaCounts>,
    /// Whether a container that uses a config has no readiness probe.
    pub is_unprobed: bool,
    /// `minReadySeconds` of the workload's spec; 0 if it has none.
    pub min_ready_seconds: u32,
    /// The names of the long-running containers of the template.
    pub containers: BTreeSet<String>,
    /// The restarts of containers of an unprobed workload that is being restarted, if they were counted.
    pub restarts: Option<PodRestarts>,
    /// The template of the pods.
    pub template: TemplateFingerprint,
    /// Whether the workload's controller reports a rollout that takes too long.
    pub has_deadline: bool,
}

/// A workload that takes a config by a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetedWorkload {
    /// The facts about the workload itself.
    pub workload: Workload,
    /// The digest that the workload's template should have.
    pub digest: ContentDigest,
    /// The digest of the same content with all keys of its objects.
    pub whole: ContentDigest,
}

impl Workload {
    /// Returns the identity of the workload.
    pub fn id(&self) -> WorkloadId {
        WorkloadId::new(self.kind, &self.name)
    }

    /// Returns the mark of the last restart by Nudge, if the pods should have its digest.
    pub fn mark(&self) -> Option<&RestartMark> {
        self.last_mark.as_ref().filter(|mark| self.digest.as_ref() == Some(&mark.digest))
    }

    /// Returns whether all pods are available, or came up with the present template by a probe.
    pub(super) fn is_well(&self) -> bool {
        self.progress == WorkloadProgress::Complete || (self.progress == WorkloadProgress::Ended && !self.is_unprobed)
    }

    /// Returns the progress of the rollout since this restart. If some pods were not available before, the same number
    /// is enough.
    pub(super) fn progress_since(&self, mark: &RestartMark) -> WorkloadProgress {
        let Some(before) = mark.before.available().filter(|_| !self.is_well()) else { return self.progress };
        let all_new = self.replicas.and_then(ReplicaCounts::available_if_updated).is_some();
        match self.progress {
            _ if all_new && self.has_available(before) => WorkloadProgress::Ended,
            WorkloadProgress::Ended => WorkloadProgress::Moving,
            progress => progress,
        }
    }

    /// Returns whether no fewer pods are available than `before`, regardless of their template.
    pub(super) fn has_available(&self, before: i32) -> bool {
        self.replicas.is_some_and(|counts| counts.available >= before.min(counts.total))
    }

    /// Returns whether somebody has changed the template since the last restart by Nudge.
    pub fn has_changed_template(&self) -> bool {
        self.last_mark.as_ref().is_some_and(|mark| mark.template != self.template)
    }

    /// Returns a report if another object writes the template, so that Nudge does not restart the workload.
    pub(super) fn owned_report(&self) -> Option<ObjectReport> {
        let (id, owner) = (self.id(), self.owner.as_ref()?);
        let message = format!("{id} belongs to {owner}, which writes its template; restart it there");
        Some(ObjectReport::new(Reason::Owned, &id, message))
    }

    /// Returns why the pods of the workload will not be replaced by a restart, as far as that can be foreseen.
    pub fn foreseen_report(&self) -> Option<ObjectReport> {
        self.owned_report().or_else(|| Some(self.update_block?.report(&self.id())))
    }

    fn new(kind: WorkloadKind, meta: &ObjectMeta, template: &PodTemplateSpec, min_ready: Option<i32>) -> Option<Self> {
        let default = ObjectMeta::default();
        let pod_meta = template.metadata.as_ref().unwrap_or(&default);
        let spec = template.spec.as_ref()?;
        let owner = controlling_owner(meta);
        let uses = restart_uses(pod_meta, spec);
        let containers = long_running_containers(spec);
        let names = containers.iter().map(|container| container.name.clone()).collect();
        // A terminating workload needs no restart.
        meta.deletion_timestamp.is_none().then(|| Self {
            kind,
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            template: if uses.names().is_empty() { "".into() } else { fingerprint(template) },
            digest: annotation(pod_meta, DIGEST_ANNOTATION).map(ContentDigest::from),
            last_mark: annotation(meta, MARK_ANNOTATION).and_then(RestartMark::parse),
            owner: owner.map(|owner| format!("{}/{}", owner.kind, owner.name)),
            update_block: None,
            progress: WorkloadProgress::Moving,
            replicas: None,
            is_unprobed: is_unprobed(spec, &containers, &uses.names()),
            min_ready_seconds: min_ready.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(0),
            containers: names,
            restarts: None,
            has_deadline: false,
            uses,
        })
    }

    /// Returns how long the workload must stay up if nothing but the start of its containers makes its pods available.
    pub(super) fn settle_seconds(&self, seconds: u32) -> u32 {
        if self.is_unprobed && self.min_ready_seconds < seconds { seconds } else { 0 }
    }

    /// Reads a Deployment.
    pub fn of_deployment(object: &Deployment) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload =
            Self::new(WorkloadKind::Deployment, &object.metadata, &spec.template, spec.min_ready_seconds)?;
        workload.has_deadline = spec.progress_deadline_seconds.is_some_and(|seconds| seconds < i32::MAX);
        if spec.paused == Some(true) {
            workload.update_block = Some(UpdateBlock::Paused);
        }
        let status = object.status.clone().unwrap_or_default();
        let replicas = spec.replicas.unwrap_or(1);
        let updated = status.updated_replicas.unwrap_or(0);
        let progressing = status.conditions.iter().flatten().find(|condition| condition.type_ == "Progressing");
        let reason = progressing.and_then(|condition| condition.reason.as_deref());
        let available = status.available_replicas.unwrap_or(0);
        // If the ReplicaSet exists already, the controller leaves the reason of the previous template. Then it reports
        // neither that the ReplicaSet comes up, nor that it takes too long.
        let updated_at =
            progressing.and_then(|condition| condition.last_update_time.as_ref()).map(|time| time.0.as_second());
        let stale =
            workload.mark().is_some_and(|mark| updated_at.is_none_or(|updated_at| updated_at < mark.at.as_second()));
        let ended = reason == Some("NewReplicaSetAvailable");
        workload.has_deadline &= !(ended && stale);
        let all_new = updated >= replicas && status.replicas.unwrap_or(0) <= updated;
        let progress = if all_new && available >= updated {
            WorkloadProgress::Complete
        } else if all_new && ended && !stale {
            WorkloadProgress::Ended
        } else if reason == Some("ProgressDeadlineExceeded") {
            WorkloadProgress::Failed
        } else {
            WorkloadProgress::Moving
        };
        let ready = status.ready_replicas.unwrap_or(0);
        let total = replicas.max(status.replicas.unwrap_or(0));
        let counts = ReplicaCounts { total, updated, ready, available };
        Some(workload.with_status(&object.metadata, status.observed_generation, progress, counts))
    }

    /// Reads a StatefulSet.
    pub fn of_stateful_set(object: &StatefulSet) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload =
            Self::new(WorkloadKind::StatefulSet, &object.metadata, &spec.template, spec.min_ready_seconds)?;
        let strategy = spec.update_strategy.clone().unwrap_or_default();
        let partition = strategy.rolling_update.and_then(|rolling| rolling.partition).unwrap_or(0);
        if strategy.type_.as_deref() == Some("OnDelete") {
            workload.update_block = Some(UpdateBlock::OnDelete);
        } else if partition > 0 {
            workload.update_block = Some(UpdateBlock::Partition);
        }
        let status = object.status.clone().unwrap_or_default();
        let replicas = spec.replicas.unwrap_or(1);
        // Old API servers do not count available pods.
        let ready = status.ready_replicas.unwrap_or(0);
        let updated = status.updated_replicas.unwrap_or(0);
        let available = status.available_replicas.unwrap_or(ready);
        let complete =
            available >= replicas && updated >= replicas && status.current_revision == status.update_revision;
        let progress = if complete || (replicas == 0 && status.replicas == 0) {
            WorkloadProgress::Complete
        } else {
            WorkloadProgress::Moving
        };
        let counts = ReplicaCounts { total: replicas.max(status.replicas), updated, ready, available };
        Some(workload.with_status(&object.metadata, status.observed_generation, progress, counts))
    }

    /// Reads a DaemonSet.
    pub fn of_daemon_set(object: &DaemonSet) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload =
            Self::new(WorkloadKind::DaemonSet, &object.metadata, &spec.template, spec.min_ready_seconds)?;
        if spec.update_strategy.as_ref().is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
            workload.update_block = Some(UpdateBlock::OnDelete);
        }
        let status = object.status.clone().unwrap_or_default();
        let scheduled = status.desired_number_scheduled;
        let updated = status.updated_number_scheduled.unwrap_or(0);
        let available = status.number_available.unwrap_or(0);
        let complete = updated >= scheduled && available >= scheduled;
        let progress = if complete { WorkloadProgress::Complete } else { WorkloadProgress::Moving };
        let counts = ReplicaCounts { total: scheduled, updated, ready: status.number_ready, available };
        Some(workload.with_status(&object.metadata, status.observed_generation, progress, counts))
    }

    /// Returns the workload with the facts of its status, unless the status describes an older template.
    fn with_status(
        self,
        meta: &ObjectMeta,
        observed: Option<i64>,
        progress: WorkloadProgress,
        replicas: ReplicaCounts,
    ) -> Self {
        if observed.unwrap_or(0) < meta.generation.unwrap_or(0) {
            return self;
        }
        Self { progress, replicas: Some(replicas), ..self }
    }
}

/// The annotations of a template that only restart its pods: Nudge's own, one of a command of earlier versions, and one
/// of `kubectl rollout restart`.
const RESTART_ANNOTATIONS: [&str; 3] =
    [DIGEST_ANNOTATION, "nudge.dev/restarted-at", "kubectl.kubernetes.io/restartedAt"];

/// Returns the fingerprint of a template, which ignores [`RESTART_ANNOTATIONS`]. The API server keeps a template as it
/// was stored, so only a change of the template changes the fingerprint.
fn fingerprint(template: &PodTemplateSpec) -> TemplateFingerprint {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        meta.annotations.iter_mut().for_each(|map| map.retain(|name, _| !RESTART_ANNOTATIONS.contains(&name.as_str())));
        meta.annotations.take_if(|map| map.is_empty());
    }
    template.metadata.take_if(|meta| *meta == ObjectMeta::default());
    // Plain data with sorted maps: serialising it can't fail, and is the same everywhere.
    let text = serde_json::to_vec(&template).unwrap_or_default();
    TemplateFingerprint::from(&*hex(&digest(&SHA256, &text).as_ref()[..8]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::annotations::HealthBefore;
    use super::*;

    fn template() -> Value {
        json!({"metadata": {"annotations": {"nudge.dev/config-digest": "d"}}, "spec": {"containers": [
            {"name": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]}]}})
    }

    fn deployment(spec: &Value, status: Value) -> Workload {
        let mut object =
            json!({"metadata": {"name": "web", "generation": 2}, "spec": {"replicas": 2, "template": template()}});
        object["spec"]["selector"] = json!({});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        object["status"] = status;
        Workload::of_deployment(&serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn a_deployment_is_complete_when_all_pods_are_new_and_available() {
        let done = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        let workload = deployment(&json!({"progressDeadlineSeconds": 600}), done.clone());
        assert_eq!((workload.id().as_str(), workload.progress), ("Deployment/web", WorkloadProgress::Complete));
        assert_eq!(
            (workload.digest.as_ref().map(ContentDigest::as_str), workload.has_deadline, workload.update_block),
            (Some("d"), true, None)
        );
        for (field, value) in
            [("observedGeneration", 1), ("replicas", 3), ("updatedReplicas", 1), ("availableReplicas", 1)]
        {
            let mut status = done.clone();
            status[field] = value.into();
            assert_eq!(deployment(&json!({}), status).progress, WorkloadProgress::Moving, "{field}");
        }
        let late = json!({"observedGeneration": 2, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
        assert_eq!(deployment(&json!({}), late).progress, WorkloadProgress::Failed);
        let mut flaps = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]});
        assert_eq!(deployment(&json!({}), flaps.clone()).progress, WorkloadProgress::Ended);
        for (field, value) in [("observedGeneration", 1), ("updatedReplicas", 0), ("replicas", 4)] {
            let known = flaps[field].take();
            flaps[field] = value.into();
            assert_eq!(
                deployment(&json!({}), flaps.clone()).progress,
                WorkloadProgress::Moving,
                "of the template before: {field}"
            );
            flaps[field] = known;
        }
        let paused = deployment(&json!({"paused": true, "progressDeadlineSeconds": i32::MAX}), done);
        assert_eq!((paused.update_block, paused.has_deadline), (Some(UpdateBlock::Paused), false));
    }

    #[test]
    fn the_controllers_word_of_before_the_restart_says_nothing() {
        let read = |restarted: &str, updated: &str, old: i32| {
            let mark = RestartMark {
                at: restarted.parse().unwrap(),
                digest: "d".into(),
                whole: "w".into(),
                template: "t".into(),
                before: HealthBefore::Well,
            };
            let object = json!({
                "metadata": {"name": "web", "generation": 2, "annotations": {"nudge.dev/restarted": mark.text()}},
                "spec": {"replicas": 1, "template": template(), "selector": {}, "progressDeadlineSeconds": 600},
                "status": {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1 - old, "conditions": [{
                    "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "lastUpdateTime": updated}]}});
            let workload = Workload::of_deployment(&serde_json::from_value(object).unwrap()).unwrap();
            (workload.progress, workload.has_deadline)
        };
        // Of the strategy Recreate: the old pod goes, then the new one is there.
        for old in [1, 0] {
            let before = read("2026-01-01T00:10:00Z", "2026-01-01T00:09:59Z", old);
            assert_eq!(before, (WorkloadProgress::Moving, false), "by our deadline, because it has none");
        }
        assert_eq!(read("2026-01-01T00:10:00.7Z", "2026-01-01T00:10:00Z", 0), (WorkloadProgress::Ended, true));
    }

    #[test]
    fn numbers_of_an_older_template_say_nothing() {
        let status = json!({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 1});
        let steps = deployment(&json!({}), status.clone()).replicas;
        assert_eq!(steps, Some(ReplicaCounts { total: 2, updated: 1, ready: 2, available: 1 }));
        let mut before = status;
        before["observedGeneration"] = 1.into();
        assert_eq!(deployment(&json!({}), before).replicas, None);
        // A new pod is more than all that were up before.
        let steps = |updated, ready| ReplicaCounts { total: 5000, updated, ready, available: 0 };
        assert!(steps(2, 0).done() > steps(1, 1000).done() && steps(2, 0).left() < steps(1, 1000).left());
    }

    #[test]
    fn an_unprobed_workload_has_a_reader_without_a_readiness_probe_and_a_short_min_ready_seconds() {
        let mut probed = template();
        probed["spec"]["containers"][0]["readinessProbe"] = json!({});
        let settles = |spec: Value| deployment(&spec, json!({})).settle_seconds(10);
        assert_eq!([settles(json!({})), settles(json!({"minReadySeconds": 1}))], [10, 10]);
        assert_eq!([settles(json!({"minReadySeconds": 10})), settles(json!({"template": probed}))], [0, 0]);
        let mut proxied = template();
        let containers = proxied["spec"]["containers"].as_array_mut().unwrap();
        containers.push(json!({"name": "proxy", "readinessProbe": {}}));
        assert_eq!(settles(json!({"template": proxied})), 10, "the probe of another container says nothing");
        probed["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "log"}));
        assert_eq!(settles(json!({"template": probed})), 0, "it does not read the config");
    }

    #[test]
    fn a_template_is_changed_by_anything_but_its_digest() {
        let fingerprint = |template: Value| deployment(&json!({"template": template}), json!({})).template;
        let ours = fingerprint(template());
        let mut later = template();
        later["metadata"]["annotations"]["nudge.dev/config-digest"] = "e".into();
        later["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "now".into();
        assert_eq!(fingerprint(later.clone()), ours);
        let mut none = template();
        none["metadata"]["annotations"] = json!({});
        assert_eq!(fingerprint(none), ours);
        let mark = RestartMark::parse("2026-01-01T00:00:00Z d w t").unwrap();
        let before = Some(RestartMark { template: ours.clone(), ..mark });
        let is_changed = |template: &Value, replicas: i32| {
            let spec = json!({"template": template, "replicas": replicas});
            Workload { last_mark: before.clone(), ..deployment(&spec, json!({})) }.has_changed_template()
        };
        assert!(!is_changed(&later, 2) && !is_changed(&later, 60), "who scales it does not change it");
        later["spec"]["containers"][0]["image"] = "other".into();
        assert!(is_changed(&later, 2));
    }

    #[test]
    fn a_stateful_set_is_complete_with_one_revision() {
        let set = |strategy: Value, status: Value| {
            let object = json!({"metadata": {"name": "db", "generation": 1}, "spec": {
                "replicas": 2, "template": template(), "selector": {}, "serviceName": "db", "updateStrategy": strategy,
            }, "status": status});
            Workload::of_stateful_set(&serde_json::from_value(object).unwrap()).unwrap()
        };
        let mut status = json!({"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
            "currentRevision": "b", "updateRevision": "b"});
        assert_eq!(set(json!({}), status.clone()).progress, WorkloadProgress::Complete);
        status["currentRevision"] = "a".into();
        assert_eq!(set(json!({}), status.clone()).progress, WorkloadProgress::Moving);
        assert_eq!(set(json!({"type": "OnDelete"}), status.clone()).update_block, Some(UpdateBlock::OnDelete));
        assert_eq!(set(json!({"rollingUpdate": {"partition": 1}}), status).update_block, Some(UpdateBlock::Partition));
    }

    #[test]
    fn a_daemon_set_is_complete_on_all_nodes() {
        let set = |available: i32| {
            let object = json!({"metadata": {"name": "log", "generation": 1}, "spec": {"template": template(), "selector": {}},
                "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3,
                    "numberAvailable": available, "currentNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 3}});
            Workload::of_daemon_set(&serde_json::from_value(object).unwrap()).unwrap().progress
        };
        assert_eq!((set(3), set(2)), (WorkloadProgress::Complete, WorkloadProgress::Moving));
    }
}
