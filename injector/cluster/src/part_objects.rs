//! The ConfigMaps and Secrets that versions consist of, and that configs publish.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, PostParams};
use kube::{Api, Client, Resource};
use nudge_api::PartKind;
use nudge_core::publish::PublishedObject;
pub use nudge_core::publish::WipedSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lenient_object::Lenient;

/// A ConfigMap or a Secret, with or without its `managedFields`.
pub trait PartObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Into<PublishedObject>
{
}

impl<K> PartObject for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Into<PublishedObject>
{
}

impl<K: Into<PublishedObject>> From<Lenient<K>> for PublishedObject {
    fn from(Lenient(object): Lenient<K>) -> Self {
        object.into()
    }
}

/// Returns the resource of objects of a kind.
pub fn part_resource(kind: PartKind) -> ApiResource {
    match kind {
        PartKind::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        PartKind::Secret => ApiResource::erase::<Secret>(&()),
    }
}

/// Creates an object, or replaces the one of this name. Returns it as the API server has stored it.
pub async fn write_part(
    client: &Client,
    namespace: &str,
    object: &PublishedObject,
    params: &PostParams,
    replaced: Option<&str>,
) -> kube::Result<PublishedObject> {
    match object.kind {
        PartKind::ConfigMap => put(client, namespace, &object.config_map(), params, replaced).await,
        PartKind::Secret => put(client, namespace, &object.secret().0, params, replaced).await,
    }
}

async fn put<K: PartObject + Serialize>(
    client: &Client,
    namespace: &str,
    object: &K,
    params: &PostParams,
    replaced: Option<&str>,
) -> kube::Result<PublishedObject> {
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let written = match replaced {
        Some(name) => Box::pin(api.replace(name, params, object)).await,
        None => Box::pin(api.create(params, object)).await,
    };
    written.map(Into::into)
}

/// Reads an object, if it exists, as a type of ConfigMaps or a type of Secrets.
pub async fn read_part<M, S>(
    client: &Client,
    namespace: &str,
    kind: PartKind,
    name: &str,
) -> kube::Result<Option<PublishedObject>>
where
    M: PartObject,
    S: PartObject,
{
    let client = client.clone();
    Ok(match kind {
        PartKind::ConfigMap => Box::pin(Api::<M>::namespaced(client, namespace).get_opt(name)).await?.map(Into::into),
        PartKind::Secret => Box::pin(Api::<S>::namespaced(client, namespace).get_opt(name)).await?.map(Into::into),
    })
}
