//! The living object of a source: a ConfigMap or a Secret.

use std::fmt;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use nudge_api::PartKind;
use nudge_core::versions::{Contents, contents_of};

use crate::follow::{Seen, follow};

/// A ConfigMap or Secret, as far as a source needs it. Its debug form has no value.
pub(crate) struct Object {
    pub(crate) kind: PartKind,
    pub(crate) meta: ObjectMeta,
    /// Empty for a ConfigMap.
    pub(crate) secret_type: String,
    pub(crate) contents: Contents,
}

impl fmt::Debug for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind, self.meta.name.as_deref().unwrap_or_default())
    }
}

/// Follows the object.
pub(crate) fn upstream(
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
    }
}

fn of_config_map(map: ConfigMap) -> Object {
    Object {
        kind: PartKind::ConfigMap,
        meta: map.metadata,
        secret_type: String::new(),
        contents: contents_of(map.data, map.binary_data),
    }
}

fn of_secret(secret: Secret) -> Object {
    Object {
        kind: PartKind::Secret,
        meta: secret.metadata,
        secret_type: secret.type_.unwrap_or_default(),
        contents: contents_of(None, secret.data),
    }
}
