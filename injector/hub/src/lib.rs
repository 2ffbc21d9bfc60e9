//! The hub: gives agents the versions for their pods to run, over held polls, and takes their reports.
//!
//! - `server`: the connections of agents, and which module answers a request.
//! - `hub`: the other modules, put together.
//! - `polling`: whether a poll is answered, and its answer.
//! - `reporting`: how a report becomes the condition of its pod, and how that is written.
//! - `callers`: whether a request is let in, and the audit trail.
//! - `contents`: the configs and the content that a pod should have.
//!
//! Each module uses only those below it in this list.

mod callers;
mod contents;
mod drain;
#[cfg(test)]
mod fixtures;
mod hub;
mod metrics;
mod polling;
mod reply;
mod reporting;
mod server;
mod settings;

pub use self::callers::{Caller, ReviewError, Reviewer};
pub use self::contents::{Part, PartError, PartSource};
pub use self::hub::{Cluster, Hub};
pub use self::polling::{ConfigError, ConfigSource};
pub use self::reporting::{ConditionWriter, PodReport, WriteError};
pub use self::server::{bind, serve};
pub use self::settings::Settings;
