//! Reads of objects whose version is not sealed: the index does not have their contents.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient::Lenient;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Contents, Facts, PartFacts, contents_of};
use nudge_protocol::backoff::Backoff;
use serde::de::DeserializeOwned;

use super::again::Again;
use crate::controller::Controller;
use crate::memory::SideCall;

/// Waits between looks at which the API server does not have the objects that the index shows. The watch brings what it has.
const OUTDATED_INDEX_BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };

impl Controller {
    /// Reads objects whose version is not sealed. Returns whether one is there.
    pub(super) async fn read_objects(
        &self,
        key: &ConfigKey,
        objects: &[(PartKind, String)],
        facts: &mut Facts,
    ) -> bool {
        if !self.memories.side_call_is_due(key, SideCall::Objects) {
            return false;
        }
        let (mut found, mut failure) = (false, None);
        for (kind, name) in objects {
            match self.read_part(&key.namespace, *kind, name).await {
                Ok(Some((read, _))) => {
                    facts.insert(read.uid.clone(), read);
                    found = true;
                }
                Ok(None) => {}
                Err(error) => {
                    // Without an answer, each of the others would take as long.
                    let silent = error.code() == 0;
                    failure.get_or_insert((*kind, name, error));
                    if silent {
                        break;
                    }
                }
            }
        }
        match &failure {
            Some((kind, name, error)) => {
                let what = format!("{kind} {name} can't be read, and no version of it is sealed");
                let quotes = *kind == PartKind::ConfigMap;
                self.memories.side_call_failed(key, SideCall::Objects, &what, error, quotes);
            }
            None => self.memories.side_call_succeeded(key, SideCall::Objects),
        }
        found && failure.is_none()
    }

    /// Reads an object that may be part of a version, with its content.
    pub(super) async fn read_part(
        &self,
        namespace: &str,
        kind: PartKind,
        name: &str,
    ) -> Result<Option<(PartFacts, Contents)>, CallError> {
        Ok(match kind {
            PartKind::ConfigMap => self.read_object(namespace, name).await?.map(|map: ConfigMap| {
                let content = contents_of(map.data.clone(), map.binary_data.clone());
                (PartFacts::of_config_map(map, &self.keys), content)
            }),
            PartKind::Secret => self.read_object(namespace, name).await?.map(|secret: Secret| {
                let content = contents_of(None, secret.data.clone());
                (PartFacts::of_secret(secret, &self.keys), content)
            }),
        })
    }

    /// Reads an object, if it is there.
    pub(super) async fn read_object<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, CallError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned,
    {
        let api: Api<Lenient<K>> = Api::namespaced(self.client.clone(), namespace);
        let object = call(|| format!("reading {} {namespace}/{name}", K::kind(&())), api.get_opt(name)).await?;
        Ok(object.map(|Lenient(object)| object))
    }

    /// Keeps the facts of objects that are not part of a sealed version yet, or of the one that waits for approvals: who made it is read there.
    pub(super) fn keep_facts(&self, key: &ConfigKey, config: &VersionedConfig, mut facts: Facts) {
        if let Some(status) = config.status.as_ref().filter(|_| !facts.is_empty()) {
            let wish = config.spec.version.as_ref().or(status.desired_version.as_ref());
            let awaited = wish.filter(|_| self.needs_approval(key, config));
            let awaited = awaited.filter(|version| status.current_version.as_ref() != Some(version));
            let parts = self.index.parts(key);
            let mut open: HashSet<&str> = parts.iter().map(|part| part.uid.as_str()).collect();
            let sealed = status.versions.iter().filter(|sealed| awaited != Some(&sealed.version));
            for sealed in sealed.flat_map(|version| &version.parts) {
                open.remove(sealed.uid.as_str());
            }
            facts.retain(|uid, _| open.contains(uid.as_str()));
        }
        self.memories.change(key, |memory| memory.facts = facts);
    }

    /// Returns when to look again at a config whose objects `unread` have to be read, after those of `tried` were asked for; `None` where there
    /// are none. Where the API server does not have an object that the index shows, each look comes later than the last one.
    pub(super) fn read_again(
        &self,
        key: &ConfigKey,
        unread: &[(PartKind, String)],
        tried: &[(PartKind, String)],
    ) -> Option<Again> {
        if !unread.iter().any(|object| tried.contains(object)) {
            self.memories.get(key, |memory| memory.outdated_looks = 0);
            return (!unread.is_empty()).then_some(Again::Soon);
        }
        self.metrics.count_outdated_look();
        let looks = self.memories.change(key, |memory| {
            memory.outdated_looks = memory.outdated_looks.saturating_add(1);
            memory.outdated_looks
        });
        Some(Again::At(OUTDATED_INDEX_BACKOFF.wait(looks)))
    }
}
