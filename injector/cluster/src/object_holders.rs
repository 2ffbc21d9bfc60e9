//! The ConfigMaps and Secrets that pods and templates of workloads name. All of a namespace is listed.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodSpec, ReplicationController};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use nudge_core::pods::ObjectHolders;
use nudge_core::pods::references;

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
    let mut add = |kind: &str, name: String, spec: Option<PodSpec>| {
        for object in spec.iter().flat_map(references) {
            holders.entry(object).or_insert_with(|| format!("{kind} {name}"));
        }
    };
    for_each_object::<Deployment>(client, namespace, |object| {
        add("Deployment", object.name_any(), object.spec.and_then(|spec| spec.template.spec));
    })
    .await?;
    for_each_object::<StatefulSet>(client, namespace, |object| {
        add("StatefulSet", object.name_any(), object.spec.and_then(|spec| spec.template.spec));
    })
    .await?;
    for_each_object::<DaemonSet>(client, namespace, |object| {
        add("DaemonSet", object.name_any(), object.spec.and_then(|spec| spec.template.spec));
    })
    .await?;
    let spec = |object: CronJob| object.spec?.job_template.spec?.template.spec;
    let listed =
        for_each_object::<CronJob>(client, namespace, |object| add("CronJob", object.name_any(), spec(object))).await;
    match listed {
        // Before Kubernetes 1.21, CronJobs are in another version of the API.
        Err(error) if error.code() == Some(404) => {
            for object in old_cron_jobs(client, namespace).await? {
                let spec = object.data.pointer("/spec/jobTemplate/spec/template/spec").cloned().unwrap_or_default();
                add("CronJob", object.name_any(), serde_json::from_value(spec).ok());
            }
        }
        listed => listed?,
    }
    for_each_object::<Job>(client, namespace, |object| {
        add("Job", object.name_any(), object.spec.and_then(|spec| spec.template.spec));
    })
    .await?;
    let spec = |object: ReplicationController| object.spec?.template?.spec;
    for_each_object::<ReplicationController>(client, namespace, |object| {
        add("ReplicationController", object.name_any(), spec(object));
    })
    .await?;
    for_each_object::<ReplicaSet>(client, namespace, |object| {
        add("ReplicaSet", object.name_any(), object.spec.and_then(|spec| spec.template?.spec));
    })
    .await?;
    for_each_object::<Pod>(client, namespace, |pod| {
        if counts(&pod) {
            add("Pod", pod.name_any(), pod.spec);
        }
    })
    .await?;
    Ok(holders)
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
