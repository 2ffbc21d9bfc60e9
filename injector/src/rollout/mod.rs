//! Which pod runs which version.

mod assignment;

pub use assignment::{assigned, newborn, pod_number};
