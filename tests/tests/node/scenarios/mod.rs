//! The scenarios, one a file. Each is a function of the [`crate::suite::Suite`] that leaves everything in namespaces of its own.

pub(crate) mod attackers;
pub(crate) mod checks;
pub(crate) mod deleted;
pub(crate) mod demo;
pub(crate) mod exposure;
pub(crate) mod failures;
pub(crate) mod forged;
pub(crate) mod handlers;
pub(crate) mod jobs;
pub(crate) mod long_restarts;
pub(crate) mod memory;
pub(crate) mod published_secrets;
pub(crate) mod quick_start;
pub(crate) mod refresh;
pub(crate) mod removal;
pub(crate) mod restarts;
pub(crate) mod rollback;
pub(crate) mod rollout;
pub(crate) mod secrets;
pub(crate) mod starving;
pub(crate) mod takeover;
pub(crate) mod users;
pub(crate) mod weather;
pub(crate) mod webhooks;
pub(crate) mod workload_restarts;
