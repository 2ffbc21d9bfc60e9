//! The API that users see: `VersionedConfig`, `VersionApproval`, `ConfigSource` and `RolloutPolicy`, and the
//! `RolloutAnalysis` through which Nudge's parts work together; their status and conditions, and the CRDs generated
//! from the types:
//!
//! ```
//! let crd = nudge_api::crd::<nudge_api::VersionedConfig>();
//! assert_eq!(crd.spec.group, "nudge.dev");
//! ```

mod bounded_text;
mod condition_types;
mod config_source;
mod crd;
mod governance;
mod immediate_override;
mod origin;
mod pod_share;
mod published_kind;
mod reason;
mod rollout_analysis;
mod rollout_policy;
mod source_from;
mod status;
mod step_selector;
mod validation;
mod variant_names;
mod version_approval;
mod versioned_config;

pub use bounded_text::Text;
pub use condition_types::{ConditionType, clipped, condition, find_condition, set_condition};
pub use config_source::{Activate, ConfigSource, ConfigSourceSpec, ConfigSourceStatus, WaitingContent};
pub use crd::{crd, crd_yaml};
pub use governance::{Analysis, Approval, Day, Hold, PolicyHold, Prometheus, SecretRef, Window};
pub use immediate_override::Override;
pub use origin::{Origin, OriginKind};
pub use pod_share::Pods;
pub use reason::{Component, Explanation, Reason, ReasonFacts};
pub use rollout_analysis::{Answer, QueryAnswers, RolloutAnalysis, RolloutAnalysisSpec, RolloutAnalysisStatus};
pub use rollout_policy::{
    LabelOperator, LabelRequirement, NamespaceSelector, RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus,
};
pub use source_from::{
    GitReference, GitSource, GitVerification, OciSource, SourceFrom, SourceObject, SourcePlace, VaultAuth,
    VaultKubernetes, VaultKv, VaultSource,
};
pub use status::{
    AnalysisStatus, AnalysisVerdict, BackgroundStatus, ConfigState, Consent, DirectReaders, EvidenceStatus, GateStatus,
    HarmedPod, InternalStatus, InvalidVersion, MAX_LEFT_ALONE, PartKind, PartStatus, PodCounts, Release,
    ReleaseApproval, ReleaseOutcome, ReleaseOverride, ReleaseRequester, ReleaseStep, RetiredVersion, RolloutFailure,
    RolloutStage, RolloutStatus, SelectorThreshold, TextStatus, VersionState, VersionStatus, VersionedConfigStatus,
    Watch, WorkloadThreshold,
};
pub use step_selector::StepSelector;
pub use validation::{ConfigMapKeyRef, SchemaSource, ValidationRule, ValueFormat};
pub use version_approval::{ApprovalDecision, VersionApproval, VersionApprovalSpec, VersionApprovalStatus};
pub use versioned_config::{AgentlessPolicy, OnFailure, RolloutSpec, Step, VersionedConfig, VersionedConfigSpec};
