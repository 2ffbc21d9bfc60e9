//! The webhooks of versions, configs, approvals, sources and policies.

use std::sync::Arc;

use nudge_core::derived_keys::NoteKey;

use super::approval_webhook::{MutateApprovals, ValidateApprovals};
use super::config_webhook::{MutateConfigs, ValidateConfigs};
use super::lookups::Lookups;
use super::only_enabled::OnlyEnabled;
use super::policy_webhook::ValidatePolicies;
use super::server::Webhooks;
use super::source_setter::MutateSources;
use super::source_webhook::ValidateSources;
use super::version_webhooks::{MutateVersions, ValidateVersions};

/// The webhooks that guard versions, configs and approvals in enabled namespaces, sources in all, and policies. `key` marks the parts whose
/// creators may update the ConfigMap, and signs who made a version, who asked for it, who approved it, and who set the spec of a source.
pub fn guards<L: Lookups>(lookups: &Arc<L>, key: Arc<NoteKey>) -> Webhooks {
    vec![
        Arc::new(OnlyEnabled::new(MutateVersions::new(Arc::clone(lookups), Arc::clone(&key)), lookups)),
        Arc::new(OnlyEnabled::new(MutateConfigs::new(Arc::clone(&key)), lookups)),
        Arc::new(OnlyEnabled::new(MutateApprovals::new(Arc::clone(&key)), lookups)),
        Arc::new(OnlyEnabled::new(MutateSources::new(key), lookups)),
        Arc::new(OnlyEnabled::new(ValidateApprovals::new(Arc::clone(lookups)), lookups)),
        Arc::new(OnlyEnabled::new(ValidateVersions::new(Arc::clone(lookups)), lookups)),
        Arc::new(OnlyEnabled::new(ValidateConfigs::new(Arc::clone(lookups)), lookups)),
        Arc::new(ValidateSources::new(Arc::clone(lookups))),
        Arc::new(ValidatePolicies),
    ]
}
