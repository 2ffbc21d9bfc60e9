//! Which pod runs which version.

mod assignment;

pub use assignment::{assigned, pod_number};
