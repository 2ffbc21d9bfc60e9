//! Which pod has which version: the pods that a rollout moves, and the thresholds below which they have the target.

pub(super) mod assigned_version;
mod subject;
mod subjects;
pub(super) mod thresholds;

pub use assigned_version::{assigned_version, version_by_number, version_for_new_pod, version_to_publish};
pub use subject::{Acknowledgement, Confirmation, Subject, pod_number};
pub use subjects::Subjects;
pub(super) use thresholds::selects;
pub use thresholds::{ALL, Thresholds};
