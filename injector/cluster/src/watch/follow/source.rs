//! The sources of objects: whole objects, or only their metadata. Objects are not parsed here, since users may write
//! values that fit no type.

use std::marker::PhantomData;

use futures::stream::BoxStream;
use futures::{AsyncBufRead, AsyncReadExt, StreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
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
    type Item: Send + Resource + DeserializeOwned;
    /// Reads a page, as text; `None` if it has more than [`MAX_PAGE_BYTES`].
    fn page(&self, params: &ListParams) -> impl Future<Output = kube::Result<Option<Vec<u8>>>> + Send;
    /// Watches the changes since a version.
    fn changes(&self, params: &WatchParams, version: &str) -> impl Future<Output = kube::Result<Events>> + Send;
}

/// A source of objects of the API server, which are parsed as `T`.
pub(in crate::watch) struct KubeSource<T> {
    client: Client,
    url: String,
    is_metadata: bool,
    item: PhantomData<fn() -> T>,
}

impl<T> KubeSource<T> {
    /// Returns the source of whole objects of the kind `K`, in the namespace if there is one.
    pub(in crate::watch) fn whole<K: Resource<DynamicType = ()>>(client: &Client, namespace: Option<&str>) -> Self {
        Self { client: client.clone(), url: K::url_path(&(), namespace), is_metadata: false, item: PhantomData }
    }
}

impl<K: Resource<DynamicType = ()>> KubeSource<PartialObjectMeta<K>> {
    /// Returns the source of the metadata of objects of the kind, in the namespace if there is one.
    pub(in crate::watch) fn metadata(client: &Client, namespace: Option<&str>) -> Self {
        Self { is_metadata: true, ..Self::whole::<K>(client, namespace) }
    }
}

impl<T: Resource + DeserializeOwned + Send> Source for KubeSource<T> {
    type Item = T;
    async fn page(&self, params: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        let request = Request::new(&self.url);
        let list = if self.is_metadata { Request::list_metadata } else { Request::list };
        let request = list(&request, params).map_err(kube::Error::BuildRequest)?;
        read_bounded(self.client.request_stream(request).await?).await
    }
    async fn changes(&self, params: &WatchParams, version: &str) -> kube::Result<Events> {
        let request = Request::new(&self.url);
        let watch = if self.is_metadata { Request::watch_metadata } else { Request::watch };
        let request = watch(&request, params, version).map_err(kube::Error::BuildRequest)?;
        Ok(self.client.request_events(request).await?.boxed())
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
