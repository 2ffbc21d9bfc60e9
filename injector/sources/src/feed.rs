//! Where the content of a source comes from: an object that is watched, or a server that is asked.

use std::future::ready;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, once, pending};
use nudge_api::{ConfigSource, FromOne, Reason};
use nudge_core::sources::interval;

use crate::follow::Seen;
use crate::git::Git;
use crate::oci::Oci;
use crate::remote::poll;
use crate::shared::Sources;
use crate::upstream::{Object, watched};
use crate::vault::Vault;

/// What is wrong with a source that no webhook has seen.
const NOT_ONE: &str = "spec.from must name exactly one of configMap, secret, git, oci and vault";

/// Asks, or watches, for the content of a source.
pub(crate) fn feed(sources: &Arc<Sources>, namespace: &str, source: &ConfigSource) -> BoxStream<'static, Seen<Object>> {
    let (interval, metrics, namespace) = (interval(source), sources.metrics.clone(), namespace.to_owned());
    let (shared, spec) = (Arc::clone(sources), Arc::new(source.spec.clone()));
    match source.spec.from.only() {
        Some(FromOne::Object(kind, name)) => watched(&sources.client, &namespace, (kind, name), sources.watch_seconds),
        // No server is asked for what nobody uses.
        _ if source.spec.suspend => pending().boxed(),
        Some(FromOne::Git(git)) => poll(Git::new(shared, namespace, spec, git.clone()), interval, metrics),
        Some(FromOne::Oci(oci)) => poll(Oci::new(shared, namespace, spec, oci.clone()), interval, metrics),
        Some(FromOne::Vault(vault)) => poll(Vault::new(shared, namespace, source, vault.clone()), interval, metrics),
        None => once(ready(Seen::Failed(Reason::SourceRefused.explained(NOT_ONE)))).chain(pending()).boxed(),
    }
}
