//! Pods that opt in but have no agent: counted, told by Events, and evicted at a limited rate where that is asked for.

mod decide;
mod metrics;
mod run;

pub use metrics::RepairMetrics;
pub use run::{RepairSettings, repair};
