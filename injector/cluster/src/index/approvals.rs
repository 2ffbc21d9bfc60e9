//! The approvals of versions, as users have written them. They are checked when they are counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use nudge_api::VersionApproval;
use nudge_core::governance::MAX_APPROVER_GROUPS_BYTES;
use nudge_core::keys::ConfigKey;
use nudge_protocol::labels;

use super::namespace_state::NamespaceState;
use super::{Index, IndexEvent, WatchedKind};
use crate::watch_health::WatchHealth;

impl Index {
    /// Returns the approvals of the config, or a message if not all are known.
    pub fn approvals(&self, key: &ConfigKey) -> Result<Vec<Arc<VersionApproval>>, &'static str> {
        let Some(state) = self.lock_namespace(&key.namespace) else { return Ok(Vec::new()) };
        let is_hidden = |(kind, health): &(_, WatchHealth)| *kind == WatchedKind::Approvals && health.is_forbidden();
        if state.watches.iter().any(is_hidden) {
            return Err("the control plane can't read VersionApprovals; apply deploy/base of this release");
        }
        if state.left_out.count(WatchedKind::Approvals) > 0 {
            return Err("the namespace has more VersionApprovals than Nudge keeps; delete some");
        }
        Ok(state.approvals_of(key).collect())
    }

    /// Returns the approvals that the index knows, even if it is not complete, to enforce their limit.
    pub fn known_approvals(&self, key: &ConfigKey) -> Vec<Arc<VersionApproval>> {
        self.lock_namespace(&key.namespace).map(|state| state.approvals_of(key).collect()).unwrap_or_default()
    }

    /// Returns the configs that have approvals, also those that do not exist.
    pub fn configs_with_approvals(&self) -> BTreeSet<ConfigKey> {
        let inner = self.lock();
        inner.namespaces.values().flat_map(|state| state.approvals.values()).map(|(key, _)| key.clone()).collect()
    }

    /// Adds an approval, or replaces it. An approval that is being deleted is gone. A new status, which Nudge itself
    /// writes, notifies nobody.
    pub fn put_approval(&self, mut approval: VersionApproval) {
        let meta = &mut approval.metadata;
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let Ok(key) = ConfigKey::parse(&*namespace, &approval.spec.config_name) else {
            return self.remove_approval(&namespace, &name);
        };
        if meta.deletion_timestamp.is_some() {
            return self.remove_approval(&namespace, &name);
        }
        // Users may write large annotations. Nothing here depends on the annotations that are dropped.
        let is_kept =
            |label: &str, text: &str| label == labels::APPROVER_GROUPS && text.len() <= MAX_APPROVER_GROUPS_BYTES;
        meta.annotations.iter_mut().for_each(|annotations| annotations.retain(|label, text| is_kept(label, text)));
        (meta.managed_fields, meta.labels, meta.owner_references, meta.finalizers) = (None, None, None, None);
        let before = {
            let Some(mut state) = self.lock_namespace(&namespace) else { return };
            let present = state.approvals.get(name.as_str());
            if present
                .is_some_and(|(_, present)| present.metadata.resource_version == approval.metadata.resource_version)
            {
                return;
            }
            let (is_known, is_same) =
                (present.is_some(), present.is_some_and(|(_, present)| is_same_decision(present, &approval)));
            if !state.has_room(WatchedKind::Approvals, &namespace, &name, is_known) {
                return;
            }
            let before = state.approvals.insert(name.into(), (key.clone(), Arc::new(approval)));
            if is_same {
                return;
            }
            before
        };
        if let Some((other, _)) = before.filter(|(other, _)| *other != key) {
            self.notify(&IndexEvent::Config(other));
        }
        self.notify(&IndexEvent::Config(key));
    }

    /// Removes an approval.
    pub fn remove_approval(&self, namespace: &str, name: &str) {
        let remove = |state: &mut NamespaceState| state.approvals.remove(name);
        let Some((key, _)) = self.remove_object(WatchedKind::Approvals, namespace, name, remove) else { return };
        self.notify(&IndexEvent::Config(key));
    }
}

/// Returns whether both approvals are the same decision.
fn is_same_decision(approval: &VersionApproval, other: &VersionApproval) -> bool {
    let (meta, other_meta) = (&approval.metadata, &other.metadata);
    (&meta.uid, &meta.annotations, &approval.spec) == (&other_meta.uid, &other_meta.annotations, &other.spec)
}
