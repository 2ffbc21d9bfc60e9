//! The facts about a pod that matter to Nudge: taken from the object once, without keeping the rest.

mod commands;
mod hash;
mod observed;
mod probe;
mod references;
mod report;
mod restarts;

pub use observed::{ObjectVersion, PodState, by_restart, condition, crashes, pod_state};
pub use probe::{SlowestProbe, notices_after, slowest_probe, start_seconds};
pub use references::references;
pub use report::{Report, ReportState};
pub use restarts::RestartHistory;
