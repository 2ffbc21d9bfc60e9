//! Look-ups in the index of this process.

use std::collections::BTreeSet;
use std::sync::Arc;

use nudge_api::{PartKind, VersionApproval, VersionedConfig};
use nudge_cluster::index::Index;
use nudge_core::governance::Policies;
use nudge_core::keys::ConfigKey;

/// The look-ups in the index, which lags behind the API server and never waits. By default they answer as an empty
/// index does.
pub trait IndexLookups: Send + Sync + 'static {
    /// Returns whether the namespace is enabled, as far as is known.
    fn is_enabled(&self, _namespace: &str) -> bool {
        false
    }

    /// Returns whether versions of the namespace may have Secrets as parts.
    fn may_have_secrets(&self, _namespace: &str) -> bool {
        false
    }

    /// Returns the value of a label of the namespace.
    fn namespace_label(&self, _namespace: &str, _label: &str) -> Option<String> {
        None
    }

    /// Returns the number of pods that use a config; `None` if not all pods of the namespace are known.
    fn subscribers(&self, _namespace: &str, _config: &str) -> Option<usize> {
        None
    }

    /// Returns the config; new versions are judged by it.
    fn config(&self, _namespace: &str, _name: &str) -> Option<Arc<VersionedConfig>> {
        None
    }

    /// Returns the policies of the namespace, which may make versions wait.
    fn policies(&self, _namespace: &str) -> Policies {
        Policies::default()
    }

    /// Returns the decisions of users about versions of the config, which limit how many more they may make.
    fn approvals(&self, _namespace: &str, _config: &str) -> Vec<Arc<VersionApproval>> {
        Vec::new()
    }

    /// Returns the kinds of the objects that are labelled as parts of the config, and are deleted with it.
    fn part_kinds(&self, _namespace: &str, _config: &str) -> BTreeSet<PartKind> {
        BTreeSet::new()
    }
}

impl IndexLookups for Index {
    fn is_enabled(&self, namespace: &str) -> bool {
        self.is_enabled(namespace)
    }

    fn may_have_secrets(&self, namespace: &str) -> bool {
        self.may_read_secrets(namespace)
    }

    fn namespace_label(&self, namespace: &str, label: &str) -> Option<String> {
        self.namespace_label(namespace, label)
    }

    fn subscribers(&self, namespace: &str, config: &str) -> Option<usize> {
        if !self.is_complete(namespace) {
            return None;
        }
        let Ok(key) = ConfigKey::parse(namespace, config) else { return Some(0) };
        // While pods are left out, nobody knows which configs they use.
        self.users(&key)?;
        Some(self.subscribers(&key).iter().filter(|pod| pod.is_live()).count())
    }

    fn config(&self, namespace: &str, name: &str) -> Option<Arc<VersionedConfig>> {
        self.config(&ConfigKey::parse(namespace, name).ok()?)
    }

    fn policies(&self, namespace: &str) -> Policies {
        self.policies(namespace)
    }

    fn approvals(&self, namespace: &str, config: &str) -> Vec<Arc<VersionApproval>> {
        ConfigKey::parse(namespace, config).map(|key| self.known_approvals(&key)).unwrap_or_default()
    }

    fn part_kinds(&self, namespace: &str, config: &str) -> BTreeSet<PartKind> {
        let parts = ConfigKey::parse(namespace, config).map(|key| self.parts(&key)).unwrap_or_default();
        parts.iter().map(|part| part.kind).collect()
    }
}
