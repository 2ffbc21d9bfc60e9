//! Which pod runs which version, and how pods are moved from one to another.

mod assignment;
mod batch;
#[cfg(test)]
mod simulation;
mod step;
mod subject;

pub use assignment::{assigned, newborn, pod_number};
pub use batch::ALL;
pub use step::{Reason, Recycling, Situation, Step, next_revision, step, to_publish};
pub use subject::Subject;
