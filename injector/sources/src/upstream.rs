//! The content of a source, and that which is a ConfigMap or a Secret: it is watched.

use std::fmt;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use nudge_api::{Origin, OriginKind, PartKind, Text};
use nudge_core::versions::{Contents, contents_of};

use crate::follow::{Seen, follow};

/// The content of a source. Its debug form has no value.
pub(crate) struct Object {
    /// What it becomes.
    pub(crate) kind: PartKind,
    /// Where it is.
    pub(crate) origin: Origin,
    /// Of a ConfigMap or Secret.
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

/// Follows the object.
pub(crate) fn watched(
    client: &Client,
    namespace: &str,
    (kind, name): (PartKind, &str),
    seconds: u32,
) -> BoxStream<'static, Seen<Object>> {
    match kind {
        PartKind::ConfigMap => {
            let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
            follow(api, name, seconds).map(|seen| as_object(seen, of_config_map)).boxed()
        }
        PartKind::Secret => {
            let api = Api::<Secret>::namespaced(client.clone(), namespace);
            follow(api, name, seconds).map(|seen| as_object(seen, of_secret)).boxed()
        }
    }
}

fn as_object<K>(seen: Seen<K>, object: impl FnOnce(K) -> Object) -> Seen<Object> {
    match seen {
        Seen::There(found) => Seen::There(object(found)),
        Seen::Gone => Seen::Gone,
        Seen::Forbidden => Seen::Forbidden,
        Seen::Failed(why) => Seen::Failed(why),
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
