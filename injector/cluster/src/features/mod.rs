//! The task that asks the API server and the nodes for their versions from time to time.

mod keep;
mod nodes;

pub use keep::{FeatureMetrics, keep_features};
