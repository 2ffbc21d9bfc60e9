//! The ConfigMaps and Secrets that pods and templates of workloads name. All of a namespace is listed: eight lists, at
//! the same time.

use std::fmt::Debug;

use futures::try_join;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodSpec, ReplicationController};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt};
use nudge_api::PartKind;
use nudge_core::pods::{ObjectHolders, references};
use serde::de::DeserializeOwned;

use crate::call::{CallError, call};
use crate::listing::for_each_object;

/// Objects, each with a workload or pod that names it.
type Named = Vec<((PartKind, String), String)>;

/// Returns the objects that templates of workloads of the namespace name, and those that these pods name, injected or
/// not. Of several that name an object, it has one, and no ReplicaSet or pod unless nothing else names it.
pub async fn object_holders(
    client: &Client,
    namespace: &str,
    counts: impl Fn(&Pod) -> bool,
) -> Result<ObjectHolders, CallError> {
    let (deployments, stateful_sets, daemon_sets, cron_jobs, jobs, controllers, replica_sets, pods) = try_join!(
        Box::pin(named_by(client, namespace, |object: Deployment| object.spec?.template.spec)),
        Box::pin(named_by(client, namespace, |object: StatefulSet| object.spec?.template.spec)),
        Box::pin(named_by(client, namespace, |object: DaemonSet| object.spec?.template.spec)),
        Box::pin(named_by_cron_jobs(client, namespace)),
        Box::pin(named_by(client, namespace, |object: Job| object.spec?.template.spec)),
        Box::pin(named_by(client, namespace, |object: ReplicationController| object.spec?.template?.spec)),
        Box::pin(named_by(client, namespace, |object: ReplicaSet| object.spec?.template?.spec)),
        Box::pin(named_by(client, namespace, |pod: Pod| if counts(&pod) { pod.spec } else { None })),
    )?;
    let mut holders = ObjectHolders::new();
    let lists = [deployments, stateful_sets, daemon_sets, cron_jobs, jobs, controllers, replica_sets, pods];
    for (object, holder) in lists.into_iter().flatten() {
        holders.entry(object).or_insert(holder);
    }
    Ok(holders)
}

/// Returns what the objects of a kind name in the specification of their pods.
async fn named_by<K>(
    client: &Client,
    namespace: &str,
    pod_spec: impl Fn(K) -> Option<PodSpec>,
) -> Result<Named, CallError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut named = Named::new();
    for_each_object::<K>(client, namespace, |object| {
        let holder = format!("{} {}", K::kind(&()), object.name_any());
        named.extend(pod_spec(object).iter().flat_map(references).map(|object| (object, holder.clone())));
    })
    .await?;
    Ok(named)
}

async fn named_by_cron_jobs(client: &Client, namespace: &str) -> Result<Named, CallError> {
    match named_by(client, namespace, |object: CronJob| object.spec?.job_template.spec?.template.spec).await {
        // Before Kubernetes 1.21, CronJobs are in another version of the API.
        Err(error) if error.code() == Some(404) => {}
        listed => return listed,
    }
    let named = old_cron_jobs(client, namespace).await?.into_iter().flat_map(|object| {
        let spec = object.data.pointer("/spec/jobTemplate/spec/template/spec").cloned().unwrap_or_default();
        let spec = serde_json::from_value::<PodSpec>(spec).ok();
        let holder = format!("CronJob {}", object.name_any());
        spec.iter().flat_map(references).map(|object| (object, holder.clone())).collect::<Vec<_>>()
    });
    Ok(named.collect())
}

async fn old_cron_jobs(client: &Client, namespace: &str) -> Result<Vec<DynamicObject>, CallError> {
    let kind = ApiResource {
        group: "batch".to_owned(),
        version: "v1beta1".to_owned(),
        api_version: "batch/v1beta1".to_owned(),
        kind: "CronJob".to_owned(),
        plural: "cronjobs".to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let listing = || format!("listing cronjobs in {namespace}");
    Ok(call(listing, api.list(&ListParams::default())).await?.items)
}
