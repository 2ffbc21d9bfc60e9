//! Reads the parts of versions from the API server, or from a stand-in.

use std::error::Error;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use nudge_api::PartKind;
use nudge_cluster::lenient_object::Lenient;
use nudge_cluster::part_objects::read_part;
use nudge_core::publish::PublishedObject;
use nudge_core::versions::Contents;

/// One stored object. It has no `Debug`, because it holds values.
pub struct Part {
    /// The uid of the object.
    pub uid: String,
    /// The keys and values of the object.
    pub contents: Contents,
}

/// The reason why a part was not read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PartError {
    /// The object does not exist.
    #[error("the object is gone")]
    Missing,
    /// Nudge has no right to read the object.
    #[error("Nudge may not read the object")]
    Forbidden,
    /// A later read may succeed.
    #[error("the object can't be read now")]
    Unavailable(#[source] Arc<dyn Error + Send + Sync>),
}

/// A source of the parts of versions.
pub trait PartSource: Send + Sync + 'static {
    /// Reads the object `name` of this kind as it is stored now.
    fn read<'a>(&'a self, namespace: &'a str, kind: PartKind, name: &'a str) -> BoxFuture<'a, Result<Part, PartError>>;
}

/// Reads from the API server.
impl PartSource for Client {
    fn read<'a>(&'a self, namespace: &'a str, kind: PartKind, name: &'a str) -> BoxFuture<'a, Result<Part, PartError>> {
        Box::pin(async move {
            let part = read_part::<Lenient<ConfigMap>, Lenient<Secret>>(self, namespace, kind, name).await;
            let PublishedObject { metadata, content, .. } = part.map_err(part_error)?.ok_or(PartError::Missing)?;
            Ok(Part { uid: metadata.uid.unwrap_or_default(), contents: content.into_parts().0 })
        })
    }
}

fn part_error(error: kube::Error) -> PartError {
    match &error {
        kube::Error::Api(status) if status.code == 403 => PartError::Forbidden,
        _ => PartError::Unavailable(Arc::new(error)),
    }
}
