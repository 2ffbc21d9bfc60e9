//! A workload that is restarted by its own rolling update.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::Reason;

use super::marks::{DIGEST, RESTARTED, Restarted, annotation};
use super::template::{Uses, restarted_for};
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

/// How far a workload's own rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All pods have the present template and are available.
    Complete,
    /// Not all pods yet.
    Moving,
    /// Its controller has given up.
    Failed,
}

/// What a restart needs to know of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its uid: another object may get the same name.
    pub uid: String,
    /// The configs for which its pods must be restarted.
    pub uses: Uses,
    /// The digest of the content that its pods started with.
    pub digest: Option<String>,
    /// Our last restart.
    pub restarted: Option<Restarted>,
    /// Its controlling owner, such as `Prometheus/main`, which writes the template.
    pub owner: Option<String>,
    /// Why its pods do not follow the template by themselves; the text continues its id.
    pub hold: Option<(Reason, &'static str)>,
    /// How far its rollout is.
    pub progress: Progress,
    /// Its controller reports a rollout that takes too long.
    pub has_deadline: bool,
}

impl Workload {
    /// Kind and name, such as `Deployment/web`.
    pub fn id(&self) -> String {
        format!("{:?}/{}", self.kind, self.name)
    }

    fn new(kind: Kind, meta: &ObjectMeta, template: &PodTemplateSpec) -> Option<Self> {
        let none = ObjectMeta::default();
        let (of_pods, spec) = (template.metadata.as_ref().unwrap_or(&none), template.spec.as_ref()?);
        let owner = controlling_owner(meta);
        // A terminating workload needs no restart.
        meta.deletion_timestamp.is_none().then(|| Self {
            kind,
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            uses: restarted_for(of_pods, spec),
            digest: annotation(of_pods, DIGEST).map(str::to_owned),
            restarted: annotation(meta, RESTARTED).and_then(Restarted::parse),
            owner: owner.map(|owner| format!("{}/{}", owner.kind, owner.name)),
            hold: None,
            progress: Progress::Moving,
            has_deadline: false,
        })
    }

    /// Of a Deployment.
    pub fn of_deployment(object: &Deployment) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload = Self::new(Kind::Deployment, &object.metadata, &spec.template)?;
        workload.has_deadline = spec.progress_deadline_seconds.is_some_and(|seconds| seconds < i32::MAX);
        if spec.paused == Some(true) {
            workload.hold = Some((Reason::Paused, "is paused; its pods are replaced when it is resumed"));
        }
        let status = object.status.clone().unwrap_or_default();
        let (replicas, updated) = (spec.replicas.unwrap_or(1), status.updated_replicas.unwrap_or(0));
        let late = status.conditions.iter().flatten().any(|condition| {
            condition.type_ == "Progressing"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
        });
        let complete = updated >= replicas
            && status.replicas.unwrap_or(0) <= updated
            && status.available_replicas.unwrap_or(0) >= updated;
        workload.progress = progress(&object.metadata, status.observed_generation, complete, late);
        Some(workload)
    }

    /// Of a StatefulSet.
    pub fn of_stateful_set(object: &StatefulSet) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload = Self::new(Kind::StatefulSet, &object.metadata, &spec.template)?;
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
        let complete = status.ready_replicas.unwrap_or(0) >= replicas
            && status.updated_replicas.unwrap_or(0) >= replicas
            && status.current_revision == status.update_revision;
        workload.progress = progress(
            &object.metadata,
            status.observed_generation,
            complete || (replicas == 0 && status.replicas == 0),
            false,
        );
        Some(workload)
    }

    /// Of a DaemonSet.
    pub fn of_daemon_set(object: &DaemonSet) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let mut workload = Self::new(Kind::DaemonSet, &object.metadata, &spec.template)?;
        if spec.update_strategy.as_ref().is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
            workload.hold =
                Some((Reason::OnDelete, "has the update strategy OnDelete; delete its pods to restart them"));
        }
        let status = object.status.clone().unwrap_or_default();
        let scheduled = status.desired_number_scheduled;
        let complete = status.updated_number_scheduled.unwrap_or(0) >= scheduled
            && status.number_available.unwrap_or(0) >= scheduled;
        workload.progress = progress(&object.metadata, status.observed_generation, complete, false);
        Some(workload)
    }
}

fn progress(meta: &ObjectMeta, observed: Option<i64>, complete: bool, late: bool) -> Progress {
    // The status is about an older template.
    if observed.unwrap_or(0) < meta.generation.unwrap_or(0) {
        Progress::Moving
    } else if complete {
        Progress::Complete
    } else if late {
        Progress::Failed
    } else {
        Progress::Moving
    }
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
        let paused = deployment(&json!({"paused": true, "progressDeadlineSeconds": i32::MAX}), done);
        assert_eq!((paused.hold.map(|(reason, _)| reason), paused.has_deadline), (Some(Reason::Paused), false));
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
