//! The task that reads the versions of the API server and the nodes regularly.

mod keep;
mod node_versions;

pub use keep::{FeatureMetrics, keep_features};
