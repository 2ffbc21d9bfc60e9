//! The ConfigMaps and Secrets that pods and templates of workloads name. All of a namespace is listed.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodSpec, ReplicationController};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt};
use nudge_core::pods::ObjectHolders;
use nudge_core::pods::references;
use serde::de::DeserializeOwned;

use crate::call::{CallError, call};
use crate::listing::for_each_object;

/// Returns the objects that templates of workloads of the namespace name, and those that these pods name, injected or
/// not. Of several that name an object, it has one, and no ReplicaSet or pod unless nothing else names it.
pub async fn object_holders(
    client: &Client,
    namespace: &str,
    counts: impl Fn(&Pod) -> bool,
) -> Result<ObjectHolders, CallError> {
    let mut holders = ObjectHolders::new();
    add_all(client, namespace, &mut holders, |object: Deployment| object.spec?.template.spec).await?;
    add_all(client, namespace, &mut holders, |object: StatefulSet| object.spec?.template.spec).await?;
    add_all(client, namespace, &mut holders, |object: DaemonSet| object.spec?.template.spec).await?;
    let spec = |object: CronJob| object.spec?.job_template.spec?.template.spec;
    match add_all(client, namespace, &mut holders, spec).await {
        // Before Kubernetes 1.21, CronJobs are in another version of the API.
        Err(error) if error.code() == Some(404) => {
            for object in old_cron_jobs(client, namespace).await? {
                let spec = object.data.pointer("/spec/jobTemplate/spec/template/spec").cloned().unwrap_or_default();
                add(&mut holders, "CronJob", &object.name_any(), serde_json::from_value(spec).ok().as_ref());
            }
        }
        listed => listed?,
    }
    add_all(client, namespace, &mut holders, |object: Job| object.spec?.template.spec).await?;
    add_all(client, namespace, &mut holders, |object: ReplicationController| object.spec?.template?.spec).await?;
    add_all(client, namespace, &mut holders, |object: ReplicaSet| object.spec?.template?.spec).await?;
    add_all(client, namespace, &mut holders, |pod: Pod| if counts(&pod) { pod.spec } else { None }).await?;
    Ok(holders)
}

/// Adds what the pods of the objects of a kind name.
async fn add_all<K>(
    client: &Client,
    namespace: &str,
    holders: &mut ObjectHolders,
    spec: impl Fn(K) -> Option<PodSpec>,
) -> Result<(), CallError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let add_object = |object: K| add(holders, &K::kind(&()), &object.name_any(), spec(object).as_ref());
    for_each_object(client, namespace, add_object).await
}

fn add(holders: &mut ObjectHolders, kind: &str, name: &str, spec: Option<&PodSpec>) {
    for object in spec.into_iter().flat_map(references) {
        holders.entry(object).or_insert_with(|| format!("{kind} {name}"));
    }
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
