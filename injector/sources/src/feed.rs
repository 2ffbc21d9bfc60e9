//! Where the content of a source comes from: an object that is watched, or a server that is asked.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, pending};
use kube::ResourceExt as _;
use nudge_api::{ConfigSource, FromOne};
use nudge_core::sources::{interval, source_faults};

use crate::follow::ObjectState;
use crate::git::Git;
use crate::oci::Oci;
use crate::server_polls::poll;
use crate::shared::Sources;
use crate::upstream::{Object, watched};
use crate::vault::Vault;

/// Asks, or watches, for the content of a source.
pub(crate) fn feed(
    sources: &Arc<Sources>,
    namespace: &str,
    source: &ConfigSource,
) -> BoxStream<'static, ObjectState<Object>> {
    let (interval, metrics, namespace) = (interval(source), sources.metrics.clone(), namespace.to_owned());
    let (shared, spec) = (Arc::clone(sources), Arc::new(source.spec.clone()));
    // What is wrong with the spec is said where it is decided what comes next.
    let from = source.spec.from.only().filter(|_| source_faults(&source.name_any(), &source.spec).is_empty());
    match from {
        Some(FromOne::Object(kind, name)) => watched(sources, &namespace, (kind, name)),
        // No server is asked for what nobody uses.
        _ if source.spec.suspend => pending().boxed(),
        Some(FromOne::Git(git)) => poll(Git::new(shared, namespace, spec, git.clone()), interval, metrics),
        Some(FromOne::Oci(oci)) => poll(Oci::new(shared, namespace, spec, oci.clone()), interval, metrics),
        Some(FromOne::Vault(vault)) => poll(Vault::new(shared, namespace, source, vault.clone()), interval, metrics),
        None => pending().boxed(),
    }
}
