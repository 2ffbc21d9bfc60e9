//! Lists by pages, and by smaller pages if the answer is too large for memory.

use std::time::Duration;

use kube::api::ListParams;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::source::{MAX_PAGE_BYTES, Source};
use super::{FollowError, Following, WatchChange, read};

/// The time that a page of a list may take.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Lists all objects. Returns the version of the list.
pub(super) async fn list<S>(
    following: &Following<S>,
    sink: &mut (impl FnMut(WatchChange<S::Item>) + Send),
) -> Result<String, FollowError>
where
    S: Source,
{
    let Following { source, labels, page_size, health, pace, .. } = following;
    let (what, mut page_size) = (health.what, *page_size);
    let mut params = ListParams::default().limit(page_size);
    if !labels.is_empty() {
        params = params.labels(labels);
    }
    sink(WatchChange::Listing);
    loop {
        // The permit is held until the page is parsed.
        let _permit = pace.wait_for_page().await;
        let page = tokio::time::timeout(PAGE_TIMEOUT, source.page(&params)).await;
        let page = page.map_err(|_| FollowError::Silent { what })?;
        let Some(bytes) = page.map_err(|source| FollowError::List { what, source })? else {
            if page_size == 1 {
                return Err(FollowError::TooLarge { what, max_bytes: MAX_PAGE_BYTES });
            }
            page_size = (page_size / 4).max(1);
            params = params.limit(page_size);
            continue;
        };
        let page: ListPage<'_> = serde_json::from_slice(&bytes)
            .map_err(|error| FollowError::List { what, source: kube::Error::SerdeError(error) })?;
        for object in page.items.into_iter().flatten() {
            read(object, sink, WatchChange::Found, false);
        }
        match page.metadata.next.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(page.metadata.resource_version.unwrap_or_default()),
        }
    }
}

/// A page. Its objects are parsed one by one.
#[derive(Deserialize)]
struct ListPage<'a> {
    #[serde(default)]
    metadata: ListPageMeta,
    /// The objects; absent, or null, if there are none: the API server writes an empty list of metadata so.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListPageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
    resource_version: Option<String>,
}
