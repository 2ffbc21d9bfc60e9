//! Pods that opt in but have no agent: counted, reported by Events, and evicted at a limited rate where that is configured.

mod decide;
mod metrics;
mod run;

pub use metrics::RepairMetrics;
pub use run::{RepairSettings, repair};
