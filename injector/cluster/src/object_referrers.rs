//! The ConfigMaps and Secrets that pods and templates of workloads name. All of a namespace is listed: eight lists, at
//! the same time.

use std::sync::Arc;

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodSpec, ReplicationController};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use nudge_api::PartKind;
use nudge_core::pods::{ObjectReferrers, references};

use crate::call::CallError;
use crate::lenient_object::Lenient;
use crate::listing::for_each_listed;

/// Objects, each with a workload or pod that names it.
type Named = Vec<((PartKind, String), String)>;

const TEMPLATE: &str = "/spec/template/spec";
const TEMPLATE_OF_CRON_JOB: &str = "/spec/jobTemplate/spec/template/spec";
const POD: &str = "/spec";

/// Returns the objects that templates of workloads of the namespace name, and those that these pods name, injected or
/// not. Of several that name an object, it has one, and no ReplicaSet or pod unless nothing else names it.
pub async fn object_referrers(
    client: &Client,
    namespace: &str,
    counts: impl Fn(&DynamicObject) -> bool + Sync,
) -> Result<ObjectReferrers, CallError> {
    let kinds = [
        (ApiResource::erase::<Deployment>(&()), TEMPLATE),
        (ApiResource::erase::<StatefulSet>(&()), TEMPLATE),
        (ApiResource::erase::<DaemonSet>(&()), TEMPLATE),
        (ApiResource::erase::<CronJob>(&()), TEMPLATE_OF_CRON_JOB),
        (ApiResource::erase::<Job>(&()), TEMPLATE),
        (ApiResource::erase::<ReplicationController>(&()), TEMPLATE),
        (ApiResource::erase::<ReplicaSet>(&()), TEMPLATE),
        (ApiResource::erase::<Pod>(&()), POD),
    ];
    let lists = kinds.map(async |(kind, pod_spec)| {
        let counts = |object: &DynamicObject| pod_spec != POD || counts(object);
        match named_by(client, namespace, &kind, pod_spec, &counts).await {
            // Before Kubernetes 1.21, CronJobs are in another version of the API.
            Err(error) if error.code() == Some(404) && pod_spec == TEMPLATE_OF_CRON_JOB => {
                let (version, api_version) = ("v1beta1".to_owned(), "batch/v1beta1".to_owned());
                named_by(client, namespace, &ApiResource { version, api_version, ..kind }, pod_spec, &counts).await
            }
            named => named,
        }
    });
    let mut referrers = ObjectReferrers::new();
    for (object, referrer) in try_join_all(lists).await?.into_iter().flatten() {
        referrers.entry(object).or_insert(referrer);
    }
    Ok(referrers)
}

/// Returns what the objects of a kind that count name in the specification of their pods.
async fn named_by(
    client: &Client,
    namespace: &str,
    kind: &ApiResource,
    pod_spec: &str,
    counts: impl Fn(&DynamicObject) -> bool,
) -> Result<Named, CallError> {
    let api: Api<Lenient<DynamicObject>> = Api::namespaced_with(client.clone(), namespace, kind);
    let listing = || format!("listing {} in {namespace}", kind.plural);
    let (mut named, mut fault) = (Named::new(), None);
    for_each_listed(listing, &api, ListParams::default(), |Lenient(mut object)| {
        let referrer = format!("{} {}", kind.kind, object.name_any());
        let is_counted = counts(&object);
        let spec = object.data.pointer_mut(pod_spec).filter(|_| is_counted).map(std::mem::take);
        match spec.map(serde_json::from_value::<PodSpec>).transpose() {
            Ok(spec) => {
                named.extend(spec.iter().flat_map(references).map(|object| (object, referrer.clone())));
            }
            Err(error) => fault = Some(error),
        }
    })
    .await?;
    let unreadable = |error| CallError::Api { what: listing(), source: Arc::new(kube::Error::SerdeError(error)) };
    fault.map_or(Ok(named), |error| Err(unreadable(error)))
}
