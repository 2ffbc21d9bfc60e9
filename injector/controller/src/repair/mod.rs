//! Pods that opt in but have no agent: counted, reported by Events, and evicted at a limited rate if that is
//! configured.

mod scan;

pub use scan::{RepairSettings, repair};
