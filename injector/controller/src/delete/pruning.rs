//! Deletions of versions beyond the history limit whose objects no pod and no template of a workload names.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodSpec, ReplicationController};
use kube::Api;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use nudge_api::{PartKind, Reason, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::listing::for_each_object;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::references;
use nudge_core::versions::{is_beyond_limit, to_prune};

use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::SideCall;

/// The time between two lists of the objects that pods and templates of a namespace name.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

impl Controller {
    /// Deletes the versions beyond the history limit. Returns when to try again if this was too soon.
    pub(crate) async fn prune(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<Duration> {
        if !self.may_delete_in(&key.namespace) {
            return None;
        }
        let parts = self.index.parts(key);
        let seals = self.seals(key, config);
        let last = seals.last_of_source(config);
        if !is_beyond_limit(config, &parts, last) {
            self.memories.side_call_succeeded(key, SideCall::Versions);
            return None;
        }
        let pods = self.index.users(key)?;
        if to_prune(config, &parts, last, &pods, &BTreeSet::new()).is_empty() {
            self.memories.side_call_succeeded(key, SideCall::Versions);
            return None;
        }
        if !self.memories.side_call_is_due(key, SideCall::Versions) {
            return None;
        }
        {
            let mut pruned_at = self.pruned_at.lock();
            pruned_at.retain(|_, time| time.elapsed() < LIST_INTERVAL);
            if let Some(time) = pruned_at.get(&key.namespace) {
                return Some(LIST_INTERVAL.saturating_sub(time.elapsed()));
            }
            pruned_at.insert(key.namespace.clone(), Instant::now());
        }
        let named = match self.named_objects(&key.namespace).await {
            Ok(named) => named,
            Err(error) => {
                let message = "what pods and workloads use can't be listed, and no version is deleted";
                self.memories.side_call_failed(key, SideCall::Versions, message, FailureCause::of(&error));
                return None;
            }
        };
        let mut failure = None;
        'versions: for (version, objects) in to_prune(config, &parts, last, &pods, &named) {
            for part in &objects {
                if let Err(error) = self.delete_part(&key.namespace, part).await {
                    let is_silent = error.code() == 0;
                    failure.get_or_insert((format!("{} {} can't be deleted", part.kind, part.name), part.kind, error));
                    // If there was no answer, each of the other deletions would take as long.
                    if is_silent {
                        break 'versions;
                    }
                    continue 'versions;
                }
            }
            let message = format!("version {version} was deleted, because no more like it are kept");
            tracing::info!(version, "version pruned");
            self.events.record(config, &[EventRecord::new(Reason::Pruned, message)]);
        }
        match failure {
            Some((what, kind, error)) => {
                self.memories.side_call_failed(key, SideCall::Versions, &what, FailureCause::of_object(kind, &error));
            }
            None => self.memories.side_call_succeeded(key, SideCall::Versions),
        }
        None
    }

    /// Returns the objects that a pod of the namespace (injected or not) or the template of a workload names.
    async fn named_objects(&self, namespace: &str) -> Result<BTreeSet<(PartKind, String)>, CallError> {
        let (client, mut named) = (&self.client, BTreeSet::new());
        let mut add = |spec: Option<PodSpec>| named.extend(spec.iter().flat_map(references));
        for_each_object::<Pod>(client, namespace, |pod| add(pod.spec)).await?;
        for_each_object::<Deployment>(client, namespace, |object| add(object.spec.and_then(|spec| spec.template.spec)))
            .await?;
        for_each_object::<StatefulSet>(client, namespace, |object| {
            add(object.spec.and_then(|spec| spec.template.spec));
        })
        .await?;
        for_each_object::<DaemonSet>(client, namespace, |object| add(object.spec.and_then(|spec| spec.template.spec)))
            .await?;
        for_each_object::<ReplicaSet>(client, namespace, |object| {
            add(object.spec.and_then(|spec| spec.template?.spec));
        })
        .await?;
        for_each_object::<Job>(client, namespace, |object| add(object.spec.and_then(|spec| spec.template.spec)))
            .await?;
        let spec = |object: ReplicationController| object.spec?.template?.spec;
        for_each_object::<ReplicationController>(client, namespace, |object| add(spec(object))).await?;
        let spec = |object: CronJob| object.spec?.job_template.spec?.template.spec;
        match for_each_object::<CronJob>(client, namespace, |object| add(spec(object))).await {
            // Before Kubernetes 1.21, CronJobs are in another version of the API.
            Err(error) if error.code() == 404 => {}
            listed => return listed.map(|()| named),
        }
        let kind = ApiResource {
            group: "batch".to_owned(),
            version: "v1beta1".to_owned(),
            api_version: "batch/v1beta1".to_owned(),
            kind: "CronJob".to_owned(),
            plural: "cronjobs".to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
        let listing = || format!("listing cronjobs in {namespace}");
        for object in call(listing, api.list(&ListParams::default())).await?.items {
            let spec = object.data.pointer("/spec/jobTemplate/spec/template/spec").cloned().unwrap_or_default();
            add(serde_json::from_value(spec).ok());
        }
        Ok(named)
    }
}
