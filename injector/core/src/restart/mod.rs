//! The restarts of workloads that take a version only at the start of their pods, because they use a published
//! ConfigMap or Secret without an agent, or because an annotation of their pods says so: the choice of the next
//! workload, and reports about workloads that can't be restarted. The controller carries out the decisions.

mod annotations;
mod config_uses;
mod content_digest;
mod elapsed;
mod evictions;
#[cfg(test)]
mod health_tests;
mod known_contents;
mod next_restart;
mod object_report;
mod pods_behind;
mod probes;
mod read_keys;
mod restart_attempts;
mod restart_goal;
mod start_times;
#[cfg(test)]
#[path = "restart_tests.rs"]
mod tests;
mod workload;

pub use annotations::{
    ContentDigest, DIGEST_ANNOTATION, HealthBefore, MARK_ANNOTATION, RestartMark, TemplateFingerprint,
};
pub use config_uses::{ConfigUses, is_restarted, restart_uses};
pub use evictions::{NextEviction, PodGroup, ReplaceablePod, Staleness, next_eviction, report_stale_pods};
pub use known_contents::{KnownContents, SealedPart};
pub use next_restart::{NextRestart, RestartSituation, UNDECIDED_MESSAGE, next_restart};
pub use object_report::{ObjectReport, RestartReport, write_restart_condition};
pub use pods_behind::{
    LivePods, PodsBehind, add_live_pods_behind, count_pods_behind, has_rolling_update, judge_pods_behind,
};
pub use read_keys::ReadKeys;
pub use restart_attempts::{RETRY_SECONDS, RestartAttempts, RolloutPart};
pub use restart_goal::{RestartGoal, is_restarting};
pub use start_times::{StartState, StartTimes, objects_with_version, published_kinds, starts_with_target};
pub use workload::{PodRestarts, ReplicaCounts, TargetedWorkload, UpdateBlock, Workload, WorkloadProgress};
