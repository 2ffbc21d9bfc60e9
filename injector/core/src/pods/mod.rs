//! What matters of a pod: taken from the object once, without keeping the rest.

mod observed;
mod probe;

pub use observed::{ObjectVersion, PodState, by_restart, pod_state, references, workload};
pub use probe::{SlowestProbe, slowest_probe};
