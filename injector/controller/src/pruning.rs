//! Rule 8: the history limit. The templates of workloads are read only when there is something to delete.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodSpec, ReplicationController};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Resource};
use nudge_api::{PartKind, Reason, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::listing::each;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::references;
use nudge_core::versions::{is_beyond_limit, to_prune};
use serde::de::DeserializeOwned;

use super::chores::Chore;
use super::controller::Controller;
use super::locked::locked;

/// How often what pods and templates of a namespace name is listed.
const AGAIN: Duration = Duration::from_secs(1);

impl Controller {
    /// Deletes the versions beyond what is kept. Returns after which time to look again, where that was too soon.
    pub(super) async fn prune(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<Duration> {
        if !self.knows(&key.namespace) {
            return None;
        }
        let parts = self.index.parts(key);
        let seals = self.seals(key, config);
        let last = seals.last_of_source(config);
        if !is_beyond_limit(config, &parts, last) {
            self.chore_succeeded(key, Chore::Versions);
            return None;
        }
        let pods = self.index.users(key)?;
        if to_prune(config, &parts, last, &pods, &BTreeSet::new()).is_empty() {
            self.chore_succeeded(key, Chore::Versions);
            return None;
        }
        if !self.chore_is_due(key, Chore::Versions) {
            return None;
        }
        {
            let mut all = locked(&self.pruned);
            all.retain(|_, last| last.elapsed() < AGAIN);
            if let Some(last) = all.get(&key.namespace) {
                return Some(AGAIN.saturating_sub(last.elapsed()));
            }
            all.insert(key.namespace.clone(), Instant::now());
        }
        let named = match self.named_by_others(&key.namespace).await {
            Ok(named) => named,
            Err(error) => {
                let what = "what pods and workloads use can't be listed, and no version is deleted";
                self.chore_failed(key, Chore::Versions, what, &error, true);
                return None;
            }
        };
        let mut failure = None;
        'versions: for (version, objects) in to_prune(config, &parts, last, &pods, &named) {
            for part in &objects {
                if let Err(error) = self.delete_part(&key.namespace, part).await {
                    let silent = error.code() == 0;
                    failure.get_or_insert((format!("{} {} can't be deleted", part.kind, part.name), part.kind, error));
                    // Without an answer, each of the others would take as long.
                    if silent {
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
                self.chore_failed(key, Chore::Versions, &what, &error, kind == PartKind::ConfigMap);
            }
            None => self.chore_succeeded(key, Chore::Versions),
        }
        None
    }

    /// The objects that a pod of the namespace, injected or not, or the template of a workload names.
    async fn named_by_others(&self, namespace: &str) -> Result<BTreeSet<(PartKind, String)>, CallError> {
        let mut named = BTreeSet::new();
        self.collect::<Pod>(namespace, &mut named, |it| it.spec.as_ref()).await?;
        self.collect::<Deployment>(namespace, &mut named, |it| it.spec.as_ref()?.template.spec.as_ref()).await?;
        self.collect::<StatefulSet>(namespace, &mut named, |it| it.spec.as_ref()?.template.spec.as_ref()).await?;
        self.collect::<DaemonSet>(namespace, &mut named, |it| it.spec.as_ref()?.template.spec.as_ref()).await?;
        self.collect::<ReplicaSet>(namespace, &mut named, |it| it.spec.as_ref()?.template.as_ref()?.spec.as_ref())
            .await?;
        self.collect::<Job>(namespace, &mut named, |it| it.spec.as_ref()?.template.spec.as_ref()).await?;
        self.collect::<ReplicationController>(namespace, &mut named, |it| {
            it.spec.as_ref()?.template.as_ref()?.spec.as_ref()
        })
        .await?;
        let cron = self.collect::<CronJob>(namespace, &mut named, |it| {
            it.spec.as_ref()?.job_template.spec.as_ref()?.template.spec.as_ref()
        });
        match cron.await {
            // Before 1.21 CronJobs are in another version of the API.
            Err(error) if error.code() == 404 => self.collect_old_cron_jobs(namespace, &mut named).await?,
            collected => collected?,
        }
        Ok(named)
    }

    async fn collect_old_cron_jobs(
        &self,
        namespace: &str,
        named: &mut BTreeSet<(PartKind, String)>,
    ) -> Result<(), CallError> {
        let kind = ApiResource {
            group: "batch".to_owned(),
            version: "v1beta1".to_owned(),
            api_version: "batch/v1beta1".to_owned(),
            kind: "CronJob".to_owned(),
            plural: "cronjobs".to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let listing = || format!("listing cronjobs in {namespace}");
        for object in call(listing, api.list(&ListParams::default())).await?.items {
            let spec = object.data.pointer("/spec/jobTemplate/spec/template/spec").cloned().unwrap_or_default();
            if let Ok(spec) = serde_json::from_value::<PodSpec>(spec) {
                named.extend(references(&spec));
            }
        }
        Ok(())
    }

    async fn collect<K>(
        &self,
        namespace: &str,
        named: &mut BTreeSet<(PartKind, String)>,
        spec: impl Fn(&K) -> Option<&PodSpec>,
    ) -> Result<(), CallError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        each::<K>(&self.client, namespace, |object| named.extend(spec(&object).into_iter().flat_map(references))).await
    }
}
