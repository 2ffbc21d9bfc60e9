//! The content of a source, and that which is a ConfigMap or a Secret: it is watched.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PartialObjectMeta;
use kube::{Api, Resource};
use nudge_api::{Origin, OriginKind, PartKind, Text};
use nudge_cluster::call::call;
use nudge_core::versions::{Contents, contents_of};
use nudge_protocol::backoff::Backoff;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::follow::{ObjectState, follow};
use crate::shared::Sources;

/// Waits after failures in a row of calls of the API server.
pub(crate) const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_mins(1) };

/// The content of a source. Its debug form has no value.
pub(crate) struct Object {
    /// What it becomes.
    pub(crate) kind: PartKind,
    /// Where it is.
    pub(crate) origin: Origin,
    /// The metadata of a ConfigMap or Secret; empty for other upstreams.
    pub(crate) meta: ObjectMeta,
    /// Empty for a ConfigMap.
    pub(crate) secret_type: String,
    pub(crate) contents: Contents,
}

impl fmt::Debug for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name())
    }
}

impl Object {
    /// Nothing yet.
    pub(crate) fn of(kind: PartKind, origin: Origin) -> Self {
        Self { kind, origin, meta: ObjectMeta::default(), secret_type: String::new(), contents: Contents::default() }
    }

    /// How messages call it.
    pub(crate) fn name(&self) -> String {
        match self.origin.kind {
            OriginKind::ConfigMap | OriginKind::Secret => format!("{} {}", self.kind, self.origin.url),
            _ => self.origin.line(),
        }
    }
}

pub(crate) fn origin(kind: OriginKind, meta: &ObjectMeta) -> Origin {
    let url = meta.name.as_deref().unwrap_or_default().into();
    let revision = meta.resource_version.as_deref().unwrap_or_default().into();
    Origin { kind, url, revision, path: Text::default(), time: None, signer: None }
}

/// Follows the object. Its metadata is watched, and it is read where that has changed: a watch keeps the memory of its largest event.
pub(crate) fn watched(
    sources: &Arc<Sources>,
    namespace: &str,
    (kind, name): (PartKind, &str),
) -> BoxStream<'static, ObjectState<Object>> {
    match kind {
        PartKind::ConfigMap => read_when_changed(sources, namespace, name, of_config_map),
        PartKind::Secret => read_when_changed(sources, namespace, name, of_secret),
    }
}

fn read_when_changed<K>(
    sources: &Arc<Sources>,
    namespace: &str,
    name: &str,
    content: fn(K) -> Object,
) -> BoxStream<'static, ObjectState<Object>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + fmt::Debug
        + Send
        + 'static,
{
    let api = Api::<K>::namespaced(sources.client.clone(), namespace);
    let metadata = Api::<PartialObjectMeta<K>>::namespaced(sources.client.clone(), namespace);
    let changes = follow(metadata, name, sources.watch_seconds);
    let reading = Arc::new((Arc::clone(sources), api, namespace.to_owned(), name.to_owned()));
    let seen = changes.then(move |seen| {
        let reading = Arc::clone(&reading);
        async move {
            match seen {
                ObjectState::There(_) => {
                    let (sources, api, namespace, name) = &*reading;
                    read(sources, api, (namespace, name), content).await
                }
                ObjectState::Gone => ObjectState::Gone,
                ObjectState::Forbidden => ObjectState::Forbidden,
                ObjectState::Failed(why) => ObjectState::Failed(why),
            }
        }
    });
    seen.boxed()
}

/// Reads the object, until the API server answers.
async fn read<K: Clone + DeserializeOwned + fmt::Debug>(
    sources: &Sources,
    api: &Api<K>,
    (namespace, name): (&str, &str),
    content: fn(K) -> Object,
) -> ObjectState<Object> {
    let mut failures = 0;
    loop {
        let room = sources.budget.read(namespace).await;
        let error = match call(|| format!("reading {namespace}/{name}"), api.get_opt(name)).await {
            Ok(object) => return object.map_or(ObjectState::Gone, |object| ObjectState::There(content(object))),
            Err(error) => error,
        };
        drop(room);
        if error.code() == 403 {
            return ObjectState::Forbidden;
        }
        failures = u32::saturating_add(failures, 1);
        // Its text may hold what could not be parsed, which may be a Secret.
        tracing::debug!(namespace, object = name, code = error.code(), "object not read; retrying");
        sleep(BACKOFF.jittered(failures, rand::random())).await;
    }
}

fn of_config_map(map: ConfigMap) -> Object {
    let origin = origin(OriginKind::ConfigMap, &map.metadata);
    let contents = contents_of(map.data, map.binary_data);
    Object { meta: map.metadata, contents, ..Object::of(PartKind::ConfigMap, origin) }
}

fn of_secret(secret: Secret) -> Object {
    let origin = origin(OriginKind::Secret, &secret.metadata);
    let (secret_type, contents) = (secret.type_.unwrap_or_default(), contents_of(None, secret.data));
    Object { meta: secret.metadata, secret_type, contents, ..Object::of(PartKind::Secret, origin) }
}
