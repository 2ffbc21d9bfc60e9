//! The content of a source, and the watch of the ConfigMap or Secret with this content.

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

use crate::budget::READ_MIB;
use crate::follow::{ObjectState, follow};
use crate::shared::Sources;

/// The waits after failed calls of the API server in a row.
pub(crate) const API_BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_mins(1) };

/// The content of a source. The debug form has no value.
pub(crate) struct Object {
    /// The kind of the version's objects.
    pub(crate) kind: PartKind,
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
    pub(crate) fn empty(kind: PartKind, origin: Origin) -> Self {
        Self { kind, origin, meta: ObjectMeta::default(), secret_type: String::new(), contents: Contents::default() }
    }

    /// Returns the name of the object in messages.
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

/// Follows the object. Only its metadata is watched, because a watch keeps the memory of its largest event. After each
/// change of the metadata, the object is read.
pub(crate) fn watch_object(
    sources: &Arc<Sources>,
    namespace: &str,
    kind: PartKind,
    name: &str,
) -> BoxStream<'static, ObjectState<Object>> {
    match kind {
        PartKind::ConfigMap => Reader::new(sources, namespace, name, object_of_config_map).follow(),
        PartKind::Secret => Reader::new(sources, namespace, name, object_of_secret).follow(),
    }
}

/// The reader of one ConfigMap or Secret.
struct Reader<K> {
    sources: Arc<Sources>,
    api: Api<K>,
    namespace: String,
    name: String,
    to_object: fn(K) -> Object,
}

impl<K> Reader<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + fmt::Debug
        + Send
        + 'static,
{
    fn new(sources: &Arc<Sources>, namespace: &str, name: &str, to_object: fn(K) -> Object) -> Arc<Self> {
        let (sources, api) = (Arc::clone(sources), Api::namespaced(sources.client.clone(), namespace));
        Arc::new(Self { sources, api, namespace: namespace.to_owned(), name: name.to_owned(), to_object })
    }

    fn follow(self: Arc<Self>) -> BoxStream<'static, ObjectState<Object>> {
        let metadata = Api::<PartialObjectMeta<K>>::namespaced(self.sources.client.clone(), &self.namespace);
        let changes = follow(metadata, &self.name, self.sources.watch_seconds);
        let states = changes.then(move |state| {
            let reader = Arc::clone(&self);
            async move {
                match state {
                    ObjectState::There(_) => reader.read().await,
                    ObjectState::Gone => ObjectState::Gone,
                    ObjectState::Forbidden => ObjectState::Forbidden,
                    ObjectState::Failed(explanation) => ObjectState::Failed(explanation),
                }
            }
        });
        states.boxed()
    }

    /// Reads the object, and retries until the API server answers.
    async fn read(&self) -> ObjectState<Object> {
        let Self { sources, api, namespace, name, to_object } = self;
        let mut failures = 0;
        loop {
            let room = sources.budget.reads.take_many(namespace, READ_MIB).await;
            let error = match call(|| format!("reading {namespace}/{name}"), api.get_opt(name)).await {
                Ok(object) => return object.map_or(ObjectState::Gone, |object| ObjectState::There(to_object(object))),
                Err(error) => error,
            };
            drop(room);
            if error.code() == 403 {
                return ObjectState::Forbidden;
            }
            failures = u32::saturating_add(failures, 1);
            // The error may quote text that could not be parsed, such as that of a Secret.
            tracing::debug!(namespace, object = name, code = error.code(), "object not read; retrying");
            sleep(API_BACKOFF.jittered_wait(failures, rand::random())).await;
        }
    }
}

fn object_of_config_map(map: ConfigMap) -> Object {
    let object_origin = origin(OriginKind::ConfigMap, &map.metadata);
    let contents = contents_of(map.data, map.binary_data);
    Object { meta: map.metadata, contents, ..Object::empty(PartKind::ConfigMap, object_origin) }
}

fn object_of_secret(secret: Secret) -> Object {
    let object_origin = origin(OriginKind::Secret, &secret.metadata);
    let (secret_type, contents) = (secret.type_.unwrap_or_default(), contents_of(None, secret.data));
    Object { meta: secret.metadata, secret_type, contents, ..Object::empty(PartKind::Secret, object_origin) }
}
