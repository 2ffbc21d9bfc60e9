//! Lists of objects, page by page, so that a long one takes little memory.

use std::fmt::Debug;

use kube::Resource;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use crate::call::{CallError, call};
use crate::lenient_object::Lenient;

/// The number of objects of a page.
const PAGE_SIZE: u32 = 200;
/// The maximum number of pages.
const MAX_PAGES: u32 = 500;

/// Calls `take` with every object of a kind in the namespace.
pub async fn for_each_object<K>(client: &Client, namespace: &str, mut take: impl FnMut(K)) -> Result<(), CallError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<Lenient<K>> = Api::namespaced(client.clone(), namespace);
    let listing = || format!("listing {} in {namespace}", K::plural(&()));
    Box::pin(for_each_listed(listing, &api, ListParams::default(), |Lenient(object)| take(object))).await
}

/// Calls `take` with every object that the API lists. `what` is the name of the operation in messages.
pub async fn for_each_listed<K: Clone + DeserializeOwned + Debug>(
    what: impl Fn() -> String,
    api: &Api<K>,
    params: ListParams,
    mut take: impl FnMut(K),
) -> Result<(), CallError> {
    let mut params = params.limit(PAGE_SIZE);
    for _ in 0..MAX_PAGES {
        let page = call(&what, api.list(&params)).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
    Err(CallError::TooMany { what: what(), max_objects: PAGE_SIZE * MAX_PAGES })
}
