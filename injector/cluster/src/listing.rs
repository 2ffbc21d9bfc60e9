//! Lists the objects of a namespace, page by page, so that a large one takes little memory.

use kube::Resource;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use crate::call::{CallError, call};
use crate::lenient::Lenient;

/// Objects of a page.
const PAGE: u32 = 200;

/// Calls `take` with every object of a kind in the namespace.
pub async fn each<K>(client: &Client, namespace: &str, mut take: impl FnMut(K)) -> Result<(), CallError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<Lenient<K>> = Api::namespaced(client.clone(), namespace);
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let listing = || format!("listing {} in {namespace}", K::plural(&()));
        let page = call(listing, api.list(&params)).await?;
        page.items.into_iter().for_each(|Lenient(object)| take(object));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}
