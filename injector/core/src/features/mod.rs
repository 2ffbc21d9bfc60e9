//! What the API server and every kubelet can do, and so how pods are injected.

mod choose;

pub use choose::{IpFamily, IpFamilyError, Minor, MinorError, Overrides, choose};
