//! The reports of agents, and the condition `nudge.dev/ConfigCurrent` of their pods: how it is judged, ordered, and
//! written.

mod concurrency;
mod condition;
mod condition_writer;
mod failing_namespaces;
#[cfg(test)]
mod hostile_reports_tests;
mod pod_conditions;
#[cfg(test)]
mod pod_conditions_tests;
mod reports;
mod round_robin;
mod write_order;
mod write_queue;
mod writer;

pub use self::condition_writer::{ConditionWriter, WriteError};
pub(crate) use self::pod_conditions::PodConditions;
pub use self::reports::PodReport;
pub(crate) use self::reports::Reports;
pub(crate) use self::write_queue::WriteQueue;
