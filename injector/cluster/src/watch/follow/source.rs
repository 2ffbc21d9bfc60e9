//! The sources of objects: whole objects, or only their metadata. Objects are not parsed here, since users may write
//! values that fit no type.

use std::fmt::Debug;

use futures::stream::BoxStream;
use futures::{AsyncBufRead, AsyncReadExt, StreamExt};
use kube::api::{Api, ListParams, ObjectMeta, WatchEvent, WatchParams};
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The maximum size of a page: more than any one object has, whatever its characters become in JSON.
pub(super) const MAX_PAGE_BYTES: u64 = 16 * 1024 * 1024;

pub(super) type Events = BoxStream<'static, kube::Result<WatchEvent<Box<RawValue>>>>;

/// A source of objects.
pub trait Source: Send + Sync {
    /// The type of the objects.
    type Item: Send + HasMeta + DeserializeOwned;
    /// Reads a page, as text; `None` if it has more than [`MAX_PAGE_BYTES`].
    fn page(&self, params: &ListParams) -> impl Future<Output = kube::Result<Option<Vec<u8>>>> + Send;
    /// Watches the changes since a version.
    fn changes(&self, params: &WatchParams, version: &str) -> impl Future<Output = kube::Result<Events>> + Send;
}

/// An object with metadata.
pub trait HasMeta {
    /// Returns the metadata.
    fn object_meta(&self) -> &ObjectMeta;
}

impl<T: Resource> HasMeta for T {
    fn object_meta(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// A source of whole objects.
pub(in crate::watch) struct Whole<K>(pub(in crate::watch) Api<K>);
/// A source of metadata only.
pub(in crate::watch) struct Metadata<K>(pub(in crate::watch) Api<K>);

fn client_and_request<K: Resource + Clone>(api: &Api<K>) -> (Client, Request) {
    (api.clone().into_client(), Request::new(api.resource_url()))
}

impl<K> Source for Whole<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    type Item = K;
    async fn page(&self, params: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        let (client, request) = client_and_request(&self.0);
        let request = request.list(params).map_err(kube::Error::BuildRequest)?;
        read_bounded(client.request_stream(request).await?).await
    }
    async fn changes(&self, params: &WatchParams, version: &str) -> kube::Result<Events> {
        let (client, request) = client_and_request(&self.0);
        let request = request.watch(params, version).map_err(kube::Error::BuildRequest)?;
        Ok(client.request_events(request).await?.boxed())
    }
}

impl<K> Source for Metadata<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    type Item = PartialObjectMeta<K>;
    async fn page(&self, params: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        let (client, request) = client_and_request(&self.0);
        let request = request.list_metadata(params).map_err(kube::Error::BuildRequest)?;
        read_bounded(client.request_stream(request).await?).await
    }
    async fn changes(&self, params: &WatchParams, version: &str) -> kube::Result<Events> {
        let (client, request) = client_and_request(&self.0);
        let request = request.watch_metadata(params, version).map_err(kube::Error::BuildRequest)?;
        Ok(client.request_events(request).await?.boxed())
    }
}

/// Reads a body, if it is not too large.
async fn read_bounded(body: impl AsyncBufRead + Send) -> kube::Result<Option<Vec<u8>>> {
    let (body, mut bytes) = (std::pin::pin!(body), Vec::new());
    body.take(MAX_PAGE_BYTES + 1).read_to_end(&mut bytes).await.map_err(kube::Error::ReadEvents)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= MAX_PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_page_that_is_too_large_is_not_kept() {
        let most = usize::try_from(MAX_PAGE_BYTES).unwrap();
        let page = async |bytes: usize| read_bounded(&*vec![b'x'; bytes]).await.unwrap().map(|page| page.len());
        assert_eq!((page(most).await, page(most + 1).await), (Some(most), None));
    }
}
