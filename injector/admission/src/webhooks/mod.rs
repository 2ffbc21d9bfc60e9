//! The webhooks of versions, texts, configs, approvals, sources and policies.

mod analyses;
mod approvals;
pub(crate) mod configs;
#[cfg(test)]
mod configs_tests;
mod only_enabled;
mod pods;
mod policies;
mod source_notes;
mod sources;
#[cfg(test)]
mod spec_faults_tests;
mod texts;
mod unattended;
pub(crate) mod versions;
mod webhook;

use std::sync::Arc;

use nudge_core::derived_keys::NoteKey;

use self::approvals::{MutateApprovals, ValidateApprovals};
use self::configs::{MutateConfigs, ValidateConfigs};
use self::policies::ValidatePolicies;
use self::source_notes::MutateSources;
use self::sources::ValidateSources;
use self::versions::{MutateVersions, ValidateVersions};
use crate::lookups::Lookups;

pub use analyses::{AnalysisWriters, ValidateAnalyses};
pub use only_enabled::OnlyEnabled;
pub use pods::InjectPods;
pub use texts::ValidateTexts;
pub use webhook::{Webhook, WebhookError, Webhooks};

/// Returns the webhooks that guard versions, configs and approvals in enabled namespaces, sources in all, and policies.
/// `key` marks the parts whose creators may update the ConfigMap. It also signs who made, requested or approved a
/// version, and who set the spec of a source.
pub fn guards<L: Lookups>(lookups: &Arc<L>, key: Arc<NoteKey>) -> Webhooks {
    vec![
        Arc::new(OnlyEnabled::new(MutateVersions { lookups: Arc::clone(lookups), key: Arc::clone(&key) }, lookups)),
        Arc::new(OnlyEnabled::new(MutateConfigs { key: Arc::clone(&key) }, lookups)),
        Arc::new(OnlyEnabled::new(MutateApprovals { key: Arc::clone(&key) }, lookups)),
        Arc::new(OnlyEnabled::new(MutateSources { key }, lookups)),
        Arc::new(OnlyEnabled::new(ValidateApprovals { lookups: Arc::clone(lookups) }, lookups)),
        Arc::new(OnlyEnabled::new(ValidateVersions::new(Arc::clone(lookups)), lookups)),
        Arc::new(OnlyEnabled::new(ValidateConfigs::new(Arc::clone(lookups)), lookups)),
        Arc::new(ValidateSources { lookups: Arc::clone(lookups) }),
        Arc::new(ValidatePolicies),
    ]
}
