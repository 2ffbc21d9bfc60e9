//! Admission: rules for versions, configs and pods, the webhooks that apply them, and the HTTPS server.

mod audit;
mod caller;
mod configs;
mod faults;
#[cfg(test)]
mod fixtures;
mod lookups;
mod metrics;
mod needed_right;
mod patch;
pub mod review;
mod review_outline;
mod server;
mod system_users;
mod tenants;
mod validation_rules;
mod verdict;
mod version_object;
mod versions;
mod webhooks;

pub use caller::Caller;
pub use lookups::{
    Accounts, AttendedKind, IndexLookups, KubeLookups, KubePodLookups, LOOKUP_TIMEOUT, LookupError, Lookups,
    PodLookupState, PodLookups, Right,
};
pub use metrics::AdmissionMetrics;
pub use review::{ReviewError, ReviewRequest};
pub use review_outline::Outline;
pub use server::{AdmissionServer, AdmissionSettings, ClientAuthority, ClientAuthorityError, StartError};
pub use system_users::empties_namespace;
pub use verdict::{AdmissionVerdict, Denial, DenialReason, UndecidedDeletions};
pub use version_object::VersionObject;
pub use webhooks::{
    AnalysisWriters, InjectPods, OnlyEnabled, ValidateAnalyses, ValidateTexts, Webhook, WebhookError, Webhooks, guards,
};
