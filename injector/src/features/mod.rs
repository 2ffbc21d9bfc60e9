//! What the API server and every kubelet can do, and so how pods are injected: the choice as a plain function, and the task that
//! asks for versions from time to time.

mod choose;
mod keep;
mod nodes;

pub use choose::{IpFamily, Minor, MinorError, Overrides, choose};
pub use keep::{FeatureMetrics, keep_features};
