//! Which pod runs which version, and how pods are moved from one to another.

mod assigned;
mod assignment;
mod back;
mod batch;
#[cfg(test)]
mod exposure_tests;
mod hold;
mod proof;
mod restarts;
#[cfg(test)]
mod simulation;
mod step;
mod subject;
#[cfg(test)]
mod tests;

pub use assigned::{is_same, told};
pub use assignment::{assigned, newborn, pod_number};
pub use batch::ALL;
pub use step::{Reason, Restarts, Situation, Step, step, to_publish};
pub use subject::Subject;
