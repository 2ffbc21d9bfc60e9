//! The task that reads the versions of the API server and the nodes regularly.

mod keep;
mod nodes;

pub use keep::{FeatureMetrics, keep_features};
