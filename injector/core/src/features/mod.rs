//! The features that the API server and every kubelet support. Injection depends on them.

mod choose;

pub use choose::{IpFamily, IpFamilyError, Minor, MinorError, Overrides, choose};
