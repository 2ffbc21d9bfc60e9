//! A workload that is restarted by its own rolling update.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::Reason;
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

use super::marks::{DIGEST, RESTARTED, Restarted, annotation};
use super::probes::{is_unprobed, running};
use super::template::{Uses, restarted_for};
use crate::injection;
use crate::injection::by_rollout;
use crate::owners::controlling_owner;

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
}

/// The progress of a workload's own rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All pods have the present template and are available.
    Complete,
    /// Its controller says that all pods came up with the present template. Not all are available now, for whatever reason.
    Ended,
    /// Some pods do not have the present template yet, or are not available.
    Moving,
    /// The workload's controller has given up.
    Failed,
}

/// The number of a workload's pods that are new, and up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The number of pods that the workload should have, or has where that is more.
    pub all: i32,
    /// Pods with the present template.
    pub updated: i32,
    /// Pods that are Ready.
    pub ready: i32,
    /// Pods that are available.
    pub available: i32,
}

impl Steps {
    fn up(self) -> i32 {
        self.ready.saturating_add(self.available)
    }

    /// Returns how many pods have an older template.
    pub(super) fn old(self) -> usize {
        usize::try_from(self.all.saturating_sub(self.updated)).unwrap_or(0)
    }

    /// Returns how many pods of the present template are available, if there are no others.
    pub(super) fn available_of_new(self) -> Option<i32> {
        (self.updated >= self.all).then_some(self.available)
    }

    /// Returns how far the rollout has come: first by new pods, then by pods that are up. The result grows where the workload is scaled up.
    pub(super) fn done(self) -> (i32, i32) {
        (self.updated, self.up())
    }

    /// Returns how much is left. The result sinks where the workload is scaled down.
    pub(super) fn left(self) -> (i32, i32) {
        (self.all.saturating_sub(self.updated), self.all.saturating_mul(2).saturating_sub(self.up()))
    }
}

/// The number of restarts of containers in pods with the present digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodRestarts {
    /// The number in the pod with the most restarts.
    pub most: i32,
    /// The number in the pod after that.
    pub second: i32,
    /// The number in all pods.
    pub all: i32,
}

impl PodRestarts {
    /// Adds the restarts of a pod.
    pub fn add(&mut self, restarts: i32) {
        self.second = self.second.max(self.most.min(restarts));
        self.most = self.most.max(restarts);
        self.all = self.all.saturating_add(restarts);
    }
}

/// The facts about a workload that a restart needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The kind of the workload.
    pub kind: Kind,
    /// The name of the workload.
    pub name: String,
    /// The uid of the workload: another object may get the same name.
    pub uid: String,
    /// The configs for which its pods must be restarted.
    pub uses: Uses,
    /// Whether the pods have an agent that takes versions without a restart: their reports say nothing of variables.
    pub agent: bool,
    /// The digest of the content that its pods started with.
    pub digest: Option<String>,
    /// The last restart by Nudge.
    pub restarted: Option<Restarted>,
    /// Its controlling owner, such as `Prometheus/main`, which writes the template.
    pub owner: Option<String>,
    /// Why its pods do not follow the template by themselves; the text continues its id.
    pub hold: Option<(Reason, &'static str)>,
    /// The progress of the workload's rollout.
    pub progress: Progress,
    /// The progress in numbers; `None` while they are about an older template.
    pub steps: Option<Steps>,
    /// Whether a container that uses a config has no readiness probe.
    pub unprobed: bool,
    /// Its `minReadySeconds`.
    pub min_ready: u32,
    /// The template's containers that run for long.
    pub containers: BTreeSet<String>,
    /// The restarts of containers of an unprobed workload that is being restarted, if they were counted.
    pub restarts: Option<PodRestarts>,
    /// Stands for the template, but for what only restarts its pods.
    pub template: String,
    /// Whether the workload's controller reports a rollout that takes too long.
    pub has_deadline: bool,
}

impl Workload {
    /// Returns kind and name, such as `Deployment/web`.
    pub fn id(&self) -> String {
        format!("{:?}/{}", self.kind, self.name)
    }

    /// Returns the last restart by Nudge, if the pods are to have its digest.
    pub fn mark(&self) -> Option<&Restarted> {
        self.restarted.as_ref().filter(|mark| self.digest.as_ref() == Some(&mark.digest))
    }

    /// Returns whether all pods are available, or came up with the present template by a probe.
    pub(super) fn is_well(&self) -> bool {
        self.progress == Progress::Complete || (self.progress == Progress::Ended && !self.unprobed)
    }

    /// Returns how far the rollout is since this restart. Where not all pods were available before, as many are enough.
    pub(super) fn progress_since(&self, mark: &Restarted) -> Progress {
        let Some(before) = mark.before.filter(|_| !self.is_well()) else { return self.progress };
        let all_new = self.steps.and_then(Steps::available_of_new).is_some();
        match self.progress {
            _ if all_new && self.has_available(before) => Progress::Ended,
            Progress::Ended => Progress::Moving,
            progress => progress,
        }
    }

    /// Returns whether as many pods are available, whatever their template.
    pub(super) fn has_available(&self, before: i32) -> bool {
        self.steps.is_some_and(|steps| steps.available >= before.min(steps.all))
    }

    /// Returns whether somebody has changed the template since the last restart by Nudge.
    pub fn is_changed(&self) -> bool {
        self.restarted.as_ref().is_some_and(|mark| mark.template != self.template)
    }

    fn new(kind: Kind, meta: &ObjectMeta, template: &PodTemplateSpec, min_ready: Option<i32>) -> Option<Self> {
        let none = ObjectMeta::default();
        let (of_pods, spec) = (template.metadata.as_ref().unwrap_or(&none), template.spec.as_ref()?);
        let owner = controlling_owner(meta);
        let uses = restarted_for(of_pods, spec);
        let containers = running(spec);
        let names = containers.iter().map(|container| container.name.clone()).collect();
        // A terminating workload needs no restart.
        meta.deletion_timestamp.is_none().then(|| Self {
            kind,
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            template: if uses == Uses::default() { String::new() } else { fingerprint(template) },
            agent: injection::opts_in(of_pods) && !by_rollout(of_pods),
            digest: annotation(of_pods, DIGEST).map(str::to_owned),
            restarted: annotation(meta, RESTARTED).and_then(Restarted::parse),
            owner: owner.map(|owner| format!("{}/{}", owner.kind, owner.name)),
            hold: None,
            progress: Progress::Moving,
            steps: None,
            unprobed: is_unprobed(spec, &containers, &uses),
            min_ready: min_ready.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(0),
            containers: names,
            restarts: None,
            has_deadline: false,
            uses,
        })
    }

    /// Returns how long the workload must stay up where nothing but the start of its containers makes its pods available.
    pub(super) fn settle_seconds(&self, seconds: u32) -> u32 {
        if self.unprobed && self.min_ready < seconds { seconds } else { 0 }
    }

    /// Reads a Deployment.
    pub fn of_deployment(object: &Deployment) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload = Self::new(Kind::Deployment, &object.metadata, &spec.template, spec.min_ready_seconds)?;
        workload.has_deadline = spec.progress_deadline_seconds.is_some_and(|seconds| seconds < i32::MAX);
        if spec.paused == Some(true) {
            workload.hold = Some((Reason::Paused, "is paused; its pods are replaced when it is resumed"));
        }
        let status = object.status.clone().unwrap_or_default();
        let (replicas, updated) = (spec.replicas.unwrap_or(1), status.updated_replicas.unwrap_or(0));
        let progressing = status.conditions.iter().flatten().find(|condition| condition.type_ == "Progressing");
        let reason = progressing.and_then(|condition| condition.reason.as_deref());
        let available = status.available_replicas.unwrap_or(0);
        // The controller leaves the reason of the template before, when it comes upon a ReplicaSet that is there already. It looks no further
        // then: it neither says when that comes up, nor that it takes too long.
        let updated_at =
            progressing.and_then(|condition| condition.last_update_time.as_ref()).map(|time| time.0.as_second());
        let stale = workload.mark().is_some_and(|mark| updated_at.is_none_or(|at| at < mark.at.as_second()));
        let ended = reason == Some("NewReplicaSetAvailable");
        workload.has_deadline &= !(ended && stale);
        let all_new = updated >= replicas && status.replicas.unwrap_or(0) <= updated;
        let progress = if all_new && available >= updated {
            Progress::Complete
        } else if all_new && ended && !stale {
            Progress::Ended
        } else if reason == Some("ProgressDeadlineExceeded") {
            Progress::Failed
        } else {
            Progress::Moving
        };
        let ready = status.ready_replicas.unwrap_or(0);
        let all = replicas.max(status.replicas.unwrap_or(0));
        Some(workload.at(
            &object.metadata,
            status.observed_generation,
            progress,
            Steps { all, updated, ready, available },
        ))
    }

    /// Reads a StatefulSet.
    pub fn of_stateful_set(object: &StatefulSet) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload = Self::new(Kind::StatefulSet, &object.metadata, &spec.template, spec.min_ready_seconds)?;
        let strategy = spec.update_strategy.clone().unwrap_or_default();
        let partition = strategy.rolling_update.and_then(|rolling| rolling.partition).unwrap_or(0);
        if strategy.type_.as_deref() == Some("OnDelete") {
            workload.hold =
                Some((Reason::OnDelete, "has the update strategy OnDelete; delete its pods to restart them"));
        } else if partition > 0 {
            workload.hold = Some((Reason::Partition, "has a partition; pods below it are not restarted"));
        }
        let status = object.status.clone().unwrap_or_default();
        let replicas = spec.replicas.unwrap_or(1);
        // Old servers do not count available pods.
        let (ready, updated) = (status.ready_replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0));
        let available = status.available_replicas.unwrap_or(ready);
        let complete =
            available >= replicas && updated >= replicas && status.current_revision == status.update_revision;
        let progress =
            if complete || (replicas == 0 && status.replicas == 0) { Progress::Complete } else { Progress::Moving };
        let all = replicas.max(status.replicas);
        let steps = Steps { all, updated, ready, available };
        Some(workload.at(&object.metadata, status.observed_generation, progress, steps))
    }

    /// Reads a DaemonSet.
    pub fn of_daemon_set(object: &DaemonSet) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload = Self::new(Kind::DaemonSet, &object.metadata, &spec.template, spec.min_ready_seconds)?;
        if spec.update_strategy.as_ref().is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
            workload.hold =
                Some((Reason::OnDelete, "has the update strategy OnDelete; delete its pods to restart them"));
        }
        let status = object.status.clone().unwrap_or_default();
        let scheduled = status.desired_number_scheduled;
        let (updated, available) = (status.updated_number_scheduled.unwrap_or(0), status.number_available.unwrap_or(0));
        let complete = updated >= scheduled && available >= scheduled;
        let progress = if complete { Progress::Complete } else { Progress::Moving };
        let steps = Steps { all: scheduled, updated, ready: status.number_ready, available };
        Some(workload.at(&object.metadata, status.observed_generation, progress, steps))
    }

    /// Returns the workload with what its status says, unless that is about an older template.
    fn at(self, meta: &ObjectMeta, observed: Option<i64>, progress: Progress, steps: Steps) -> Self {
        if observed.unwrap_or(0) < meta.generation.unwrap_or(0) {
            return self;
        }
        Self { progress, steps: Some(steps), ..self }
    }
}

/// Annotations that replace pods and change nothing else: ours, that of a command of earlier versions, and that of
/// `kubectl rollout restart`.
const ONLY_RESTART: [&str; 3] = [DIGEST, "nudge.dev/restarted-at", "kubectl.kubernetes.io/restartedAt"];

/// Stands for the template, but for what only restarts its pods. The API server keeps what it has once stored, so nothing but a change
/// changes it.
fn fingerprint(template: &PodTemplateSpec) -> String {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        meta.annotations.iter_mut().for_each(|all| all.retain(|name, _| !ONLY_RESTART.contains(&name.as_str())));
        meta.annotations.take_if(|all| all.is_empty());
    }
    template.metadata.take_if(|meta| *meta == ObjectMeta::default());
    // Plain data with sorted maps: serialising it can't fail, and is the same everywhere.
    let text = serde_json::to_vec(&template).unwrap_or_default();
    hex(&digest(&SHA256, &text).as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        assert_eq!((workload.id().as_str(), workload.progress), ("Deployment/web", Progress::Complete));
        assert_eq!((workload.digest.as_deref(), workload.has_deadline, workload.hold), (Some("d"), true, None));
        for (field, value) in
            [("observedGeneration", 1), ("replicas", 3), ("updatedReplicas", 1), ("availableReplicas", 1)]
        {
            let mut status = done.clone();
            status[field] = value.into();
            assert_eq!(deployment(&json!({}), status).progress, Progress::Moving, "{field}");
        }
        let late = json!({"observedGeneration": 2, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
        assert_eq!(deployment(&json!({}), late).progress, Progress::Failed);
        let mut flaps = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]});
        assert_eq!(deployment(&json!({}), flaps.clone()).progress, Progress::Ended);
        for (field, value) in [("observedGeneration", 1), ("updatedReplicas", 0), ("replicas", 4)] {
            let known = flaps[field].take();
            flaps[field] = value.into();
            assert_eq!(
                deployment(&json!({}), flaps.clone()).progress,
                Progress::Moving,
                "of the template before: {field}"
            );
            flaps[field] = known;
        }
        let paused = deployment(&json!({"paused": true, "progressDeadlineSeconds": i32::MAX}), done);
        assert_eq!((paused.hold.map(|(reason, _)| reason), paused.has_deadline), (Some(Reason::Paused), false));
    }

    #[test]
    fn the_controllers_word_of_before_the_restart_says_nothing() {
        let read = |restarted: &str, updated: &str, old: i32| {
            let mark = Restarted {
                at: restarted.parse().unwrap(),
                digest: "d".to_owned(),
                template: "t".to_owned(),
                unwell: false,
                before: None,
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
            assert_eq!(before, (Progress::Moving, false), "by our deadline, because it has none");
        }
        assert_eq!(read("2026-01-01T00:10:00.7Z", "2026-01-01T00:10:00Z", 0), (Progress::Ended, true));
    }

    #[test]
    fn numbers_of_an_older_template_say_nothing() {
        let status = json!({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 1});
        let steps = deployment(&json!({}), status.clone()).steps;
        assert_eq!(steps, Some(Steps { all: 2, updated: 1, ready: 2, available: 1 }));
        let mut before = status;
        before["observedGeneration"] = 1.into();
        assert_eq!(deployment(&json!({}), before).steps, None);
        // A new pod is more than all that were up before.
        let steps = |updated, ready| Steps { all: 5000, updated, ready, available: 0 };
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
        let before = Some(Restarted::parse(&format!("2026-01-01T00:00:00Z d {ours}")).unwrap());
        let is_changed = |template: &Value, replicas: i32| {
            let spec = json!({"template": template, "replicas": replicas});
            Workload { restarted: before.clone(), ..deployment(&spec, json!({})) }.is_changed()
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
        assert_eq!(set(json!({}), status.clone()).progress, Progress::Complete);
        status["currentRevision"] = "a".into();
        assert_eq!(set(json!({}), status.clone()).progress, Progress::Moving);
        assert_eq!(set(json!({"type": "OnDelete"}), status.clone()).hold.unwrap().0, Reason::OnDelete);
        assert_eq!(set(json!({"rollingUpdate": {"partition": 1}}), status).hold.unwrap().0, Reason::Partition);
    }

    #[test]
    fn a_daemon_set_is_complete_on_all_nodes() {
        let set = |available: i32| {
            let object = json!({"metadata": {"name": "log", "generation": 1}, "spec": {"template": template(), "selector": {}},
                "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3,
                    "numberAvailable": available, "currentNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 3}});
            Workload::of_daemon_set(&serde_json::from_value(object).unwrap()).unwrap().progress
        };
        assert_eq!((set(3), set(2)), (Progress::Complete, Progress::Moving));
    }
}
