//! What users have decided about versions, as they have written it: who counts it checks it.

use std::collections::BTreeSet;
use std::sync::Arc;

use nudge_api::VersionApproval;
use nudge_core::governance::APPROVER_GROUPS_BYTES;
use nudge_core::keys::ConfigKey;
use nudge_protocol::labels;

use super::{Index, IndexEvent, Kind};

impl Index {
    /// What was decided about versions of the config; a message where that is not known whole.
    pub fn approvals(&self, key: &ConfigKey) -> Result<Vec<Arc<VersionApproval>>, &'static str> {
        let inner = self.lock();
        let Some(space) = inner.spaces.get(&key.namespace) else { return Ok(Vec::new()) };
        if space.hides_approvals() {
            return Err("the control plane can't read VersionApprovals; apply deploy/base of this release");
        }
        if space.unkept.count(Kind::Approvals) > 0 {
            return Err("the namespace has more VersionApprovals than Nudge keeps; delete some");
        }
        Ok(space.approvals_of(key).collect())
    }

    /// The approvals that the index knows, even if it is not complete: to enforce their limit.
    pub fn known_approvals(&self, key: &ConfigKey) -> Vec<Arc<VersionApproval>> {
        let inner = self.lock();
        inner.spaces.get(&key.namespace).map(|space| space.approvals_of(key).collect()).unwrap_or_default()
    }

    /// The configs that users have decided about, also those that are not there.
    pub fn configs_with_approvals(&self) -> BTreeSet<ConfigKey> {
        let inner = self.lock();
        inner.spaces.values().flat_map(|space| space.approvals.values()).map(|(key, _)| key.clone()).collect()
    }

    /// Adds an approval, or replaces it. One that is being deleted is gone: it was withdrawn. The status that Nudge itself writes wakes nobody.
    pub fn put_approval(&self, mut approval: VersionApproval) {
        let meta = &mut approval.metadata;
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let Ok(key) = ConfigKey::parse(&*namespace, &approval.spec.config_name) else {
            return self.remove_approval(&namespace, &name);
        };
        if meta.deletion_timestamp.is_some() {
            return self.remove_approval(&namespace, &name);
        }
        // Users may write large ones, and nothing here depends on the others.
        let kept = |label: &str, text: &str| label == labels::APPROVER_GROUPS && text.len() <= APPROVER_GROUPS_BYTES;
        meta.annotations.iter_mut().for_each(|all| all.retain(|label, text| kept(label, text)));
        (meta.managed_fields, meta.labels, meta.owner_references, meta.finalizers) = (None, None, None, None);
        let before = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(&namespace) else { return };
            let known = space.approvals.get(name.as_str());
            if known.is_some_and(|(_, known)| known.metadata.resource_version == approval.metadata.resource_version) {
                return;
            }
            let (is_known, says_the_same) =
                (known.is_some(), known.is_some_and(|(_, known)| is_same(known, &approval)));
            if !space.takes(Kind::Approvals, &namespace, &name, is_known) {
                return;
            }
            let before = space.approvals.insert(name.into(), (key.clone(), Arc::new(approval)));
            if says_the_same {
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
        let gone = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(namespace) else { return };
            space.unkept.remove(Kind::Approvals, name);
            let Some((key, _)) = space.approvals.remove(name) else { return };
            space.removed(Kind::Approvals);
            key
        };
        self.notify(&IndexEvent::Config(gone));
    }
}

/// Returns whether both are the same decision.
fn is_same(one: &VersionApproval, other: &VersionApproval) -> bool {
    let (meta, other_meta) = (&one.metadata, &other.metadata);
    (&meta.uid, &meta.annotations, &one.spec) == (&other_meta.uid, &other_meta.annotations, &other.spec)
}
