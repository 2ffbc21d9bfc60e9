//! Reads of objects whose version is not sealed, whose contents the index does not have.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient_object::Lenient;
use nudge_cluster::part_objects::read_part;
use nudge_core::keys::ConfigKey;
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{Contents, FactsByUid, PartFacts};
use nudge_protocol::backoff::Backoff;
use serde::de::DeserializeOwned;

use super::next_reconcile::NextReconcile;
use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::SideCall;

/// The waits between reconciles while the API server lacks objects that the index shows. The watch brings the server's
/// state.
const OUTDATED_INDEX_BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };

impl Controller {
    /// Reads objects whose version is not sealed. Returns whether one exists and all could be read.
    pub(super) async fn read_objects(
        &self,
        key: &ConfigKey,
        objects: &[(PartKind, String)],
        facts: &mut FactsByUid,
    ) -> bool {
        if !self.memories.side_call_is_due(key, SideCall::Objects) {
            return false;
        }
        let (mut exists, mut failure) = (false, None);
        for (kind, name) in objects {
            match self.read_part(&key.namespace, *kind, name).await {
                Ok(Some((read, _))) => {
                    facts.insert(read.uid.clone(), read);
                    exists = true;
                }
                Ok(None) => {}
                Err(error) => {
                    // If there was no answer, each of the other reads would take as long.
                    let is_silent = error.code().is_none();
                    failure.get_or_insert((*kind, name, error));
                    if is_silent {
                        break;
                    }
                }
            }
        }
        match &failure {
            Some((kind, name, error)) => {
                let message = format!("{kind} {name} can't be read, and no version of it is sealed");
                self.memories.side_call_failed(key, SideCall::Objects, &message, FailureCause::of_object(*kind, error));
            }
            None => self.memories.side_call_succeeded(key, SideCall::Objects),
        }
        exists && failure.is_none()
    }

    /// Reads an object that may be part of a version, with its content.
    pub(super) async fn read_part(
        &self,
        namespace: &str,
        kind: PartKind,
        name: &str,
    ) -> Result<Option<(PartFacts, Contents)>, CallError> {
        let part = read_part::<Lenient<ConfigMap>, Lenient<Secret>>(&self.client, namespace, kind, name);
        let part = call(|| format!("reading {kind} {namespace}/{name}"), part).await?;
        Ok(part.map(|PublishedObject { metadata, immutable, content, .. }| {
            let (content, _) = content.into_parts();
            (PartFacts::new(kind, &metadata, immutable, &content, &self.keys), content)
        }))
    }

    /// Reads an object, if it exists.
    pub(crate) async fn read_object<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, CallError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned,
    {
        let api: Api<Lenient<K>> = Api::namespaced(self.client.clone(), namespace);
        let object = call(|| format!("reading {} {namespace}/{name}", K::kind(&())), api.get_opt(name)).await?;
        Ok(object.map(|Lenient(object)| object))
    }

    /// Keeps the facts of objects that are not part of a sealed version yet. Also keeps those of the version that waits
    /// for approvals, because they name its author.
    pub(super) fn keep_facts(&self, key: &ConfigKey, config: &VersionedConfig, mut facts: FactsByUid) {
        if let Some(status) = config.status.as_ref().filter(|_| !facts.is_empty()) {
            let desired = config.requested_version().or(status.desired_version.as_deref());
            let awaited = desired.filter(|_| self.needs_approval(key, config));
            let awaited = awaited.filter(|version| status.current_version.as_deref() != Some(version));
            let parts = self.index.parts(key);
            let mut open: HashSet<&str> = parts.iter().map(|part| part.uid.as_str()).collect();
            let sealed = status.versions.iter().filter(|sealed| awaited != Some(sealed.version.as_str()));
            for sealed in sealed.flat_map(|version| &version.parts) {
                open.remove(sealed.uid.as_str());
            }
            facts.retain(|uid, _| open.contains(uid.as_str()));
        }
        self.memories.change(key, |memory| memory.facts = facts);
    }

    /// Returns when to read the `unread` objects, after an attempt to read the `tried` ones; `None` if none is unread.
    /// While the API server lacks an object that the index shows, each wait is longer than the last.
    pub(super) fn next_read(
        &self,
        key: &ConfigKey,
        unread: &[(PartKind, String)],
        tried: &[(PartKind, String)],
    ) -> Option<NextReconcile> {
        if !unread.iter().any(|object| tried.contains(object)) {
            self.memories.get(key, |memory| memory.outdated_reconciles = 0);
            return (!unread.is_empty()).then_some(NextReconcile::Soon);
        }
        self.metrics.outdated_reconciles.inc();
        let reconciles = self.memories.change(key, |memory| {
            memory.outdated_reconciles = memory.outdated_reconciles.saturating_add(1);
            memory.outdated_reconciles
        });
        Some(NextReconcile::Within(OUTDATED_INDEX_BACKOFF.wait(reconciles)))
    }
}
