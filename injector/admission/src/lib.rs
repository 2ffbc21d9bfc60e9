//! Admission: rules for versions, configs and pods, the webhooks that apply them, and the HTTPS server.

mod analysis_webhook;
mod approval_webhook;
mod attention;
mod audit;
mod caller;
mod config_webhook;
#[cfg(test)]
mod config_webhook_tests;
pub mod configs;
mod faults;
#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod fixtures;
mod guards;
mod kube_lookups;
mod lookups;
mod metrics;
mod object;
mod only_enabled;
mod outline;
pub mod pods;
mod policy_webhook;
mod requester;
pub mod review;
pub mod server;
mod source_setter;
mod source_webhook;
mod tenants;
mod validation;
mod verdict;
mod version_webhooks;
pub mod versions;
mod webhook;

pub use analysis_webhook::{AnalysisWriters, ValidateAnalyses};
pub use caller::Caller;
pub use guards::guards;
pub use kube_lookups::{
    Accounts, KnownApprovals, KnownConfigs, KnownNamespaces, KnownPartKinds, KnownPolicies, KubeLookups,
    LOOKUP_TIMEOUT, Subscribers,
};
pub use lookups::{AttendedKind, LookupError, Lookups, Right};
pub use metrics::AdmissionMetrics;
pub use object::{Content, VersionObject};
pub use only_enabled::OnlyEnabled;
pub use outline::Outline;
pub use requester::empties_namespace;
pub use review::{Request, ReviewError};
pub use server::{AdmissionServer, AdmissionSettings, Clients, ClientsError, StartError, Webhooks};
pub use verdict::{Denial, DenialReason, Verdict};
pub use webhook::{Webhook, WebhookError};
