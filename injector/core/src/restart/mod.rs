//! Workloads that take a version by a restart, because they use a published ConfigMap or Secret without an agent, or because their annotation says so:
//! which of them is restarted next, and the report about those that can't be. The controller carries it out.

mod behind;
mod content_digest;
mod elapsed;
#[cfg(test)]
mod health_tests;
mod holds;
mod marks;
mod memory;
mod next;
mod probes;
mod report;
mod stale_pods;
mod template;
#[cfg(test)]
#[path = "restart_tests.rs"]
mod tests;
mod workload;

pub use behind::{Behind, add_unnotified, behind, judge, rolls};
pub use content_digest::content_digest;
pub use holds::Holds;
pub use marks::{DIGEST, RESTARTED, Restarted};
pub use memory::{Memory, Part, RETRY_SECONDS};
pub use next::{Look, Next, UNDECIDED, next};
pub use report::{Report, RestartReport, write_condition};
pub use stale_pods::{Group, NextPod, ReplaceablePod, Stale, next_pod, stale_pods};
pub use template::{Uses, is_restarted, restarted_for};
pub use workload::{Kind, PodRestarts, Progress, Steps, Workload};
