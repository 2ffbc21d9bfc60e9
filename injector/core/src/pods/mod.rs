//! The facts about a pod that matter to Nudge: taken from the object once, without keeping the rest.

mod commands;
mod from_object;
mod hash;
mod pod_state;
mod probe;
mod references;
mod report;
mod restarts;

pub use commands::LastCommand;
pub use from_object::{condition, crashes, pod_state};
pub use pod_state::{AgentState, PodPhase, PodState, Readiness, Removal, UpdateMode};
pub use probe::{ProbeTimes, SlowestProbe, unprobed_containers};
pub use references::{ObjectReferrers, direct_references, read_kinds, references};
pub use report::{Report, ReportState};
pub use restarts::{PodRestartHistory, RestartSums};
