//! Requests, and their outcomes.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use nudge_oci::{Artifact, Credential, OciError, OciReference, Pick, PullRequest, Registry};
use nudge_outbound::Reach;
use nudge_protocol::error_chain::chain;
use rustls::RootCertStore;
use zeroize::Zeroizing;

/// A text that no message may have.
pub(crate) const HIDDEN: &str = "hidden-1f7c";

/// Anything, without TLS.
pub(crate) fn anywhere() -> Registry {
    Registry::new(Reach::Anywhere, Arc::new(RootCertStore::empty()))
}

pub(crate) fn plain(host: &str) -> Result<OciReference> {
    Ok(OciReference::parse(&format!("oci+http://{host}/team/shop"))?)
}

pub(crate) fn tag(tag: &str) -> Pick {
    Pick::Tag(tag.to_owned())
}

pub(crate) fn basic(password: &str) -> Credential {
    Credential::Basic { username: "shop".to_owned(), password: Zeroizing::new(password.to_owned()) }
}

/// Everything, by nobody.
pub(crate) fn all<'a>(reference: &'a OciReference, pick: &'a Pick) -> PullRequest<'a> {
    PullRequest {
        reference,
        pick,
        platform: None,
        path: "",
        credential: &Credential::Anonymous,
        trusts_realm: &|_| false,
        is_wanted: &|_| true,
    }
}

pub(crate) async fn pulled(registry: &Registry, request: &PullRequest<'_>) -> Result<Artifact> {
    registry.pull(request, None).await?.context("it is unchanged, though nothing was known")
}

/// Returns the error, after a check that it repeats no text of the server and no credential.
pub(crate) async fn refused(registry: &Registry, request: &PullRequest<'_>) -> Result<OciError> {
    let Err(error) = registry.pull(request, None).await else { bail!("it was pulled") };
    let text = format!("{} {error:?}", chain(&error));
    anyhow::ensure!(!text.contains(HIDDEN), "{text}");
    Ok(error)
}

pub(crate) fn files<const N: usize>(files: [(&str, &str); N]) -> BTreeMap<String, Zeroizing<Vec<u8>>> {
    files.into_iter().map(|(path, text)| (path.to_owned(), Zeroizing::new(text.as_bytes().to_vec()))).collect()
}
