//! The polls of the server with a source's content.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, pending};
use kube::ResourceExt as _;
use nudge_api::{ConfigSource, Explanation, SourcePlace};
use nudge_core::sources::{poll_period, source_faults};

use crate::git::Git;
use crate::oci::Oci;
use crate::server_polls::poll;
use crate::source_content::SourceContent;
use crate::sources::Sources;
use crate::vault::Vault;

/// Returns the contents of a source, one after each change, and the reasons why it could not be read.
pub(crate) fn feed(
    sources: &Arc<Sources>,
    namespace: &str,
    source: &ConfigSource,
) -> BoxStream<'static, Result<SourceContent, Explanation>> {
    let (interval, metrics, namespace) = (poll_period(source), sources.metrics.clone(), namespace.to_owned());
    let (shared, spec) = (Arc::clone(sources), Arc::new(source.spec.clone()));
    // If the spec has faults, the decision about the next act reports them.
    let place = source.spec.from.place().filter(|_| source_faults(&source.name_any(), &source.spec).is_empty());
    match place {
        // Nobody uses the content of a suspended source, so its server is not polled.
        _ if source.spec.suspend => pending().boxed(),
        Some(SourcePlace::Git(git)) => poll(Git::new(shared, namespace, spec, git.clone()), interval, metrics),
        Some(SourcePlace::Oci(oci)) => poll(Oci::new(shared, namespace, spec, oci.clone()), interval, metrics),
        Some(SourcePlace::Vault(vault)) => {
            poll(Vault::new(shared, namespace, source, vault.clone()), interval, metrics)
        }
        None => pending().boxed(),
    }
}
