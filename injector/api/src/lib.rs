//! The API that users see: `VersionedConfig`, its status, its conditions, and the CRD generated from the types.

mod conditions;
mod crd;
mod reason;
mod status;
mod versioned_config;

pub use conditions::{ConditionType, clipped, condition, find_condition, set_condition};
pub use crd::{crd, crd_yaml};
pub use reason::{Component, Explanation, Reason, ReasonFacts};
pub use status::{
    BatchWatch, Consent, GroupStatus, PartKind, PartStatus, Phase, PodCounts, PodRestarts, RetiredVersion,
    RolloutFailure, RolloutStage, RolloutStatus, SkippedPod, VersionState, VersionStatus, VersionedConfigStatus,
};
pub use versioned_config::{Batch, OnFailure, RolloutSpec, VersionedConfig, VersionedConfigSpec, WithoutAgent};
