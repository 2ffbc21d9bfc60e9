//! Long polls of agents: each is held until the pod's own state differs from the agent's.

mod answer;
mod confirmations;
#[cfg(test)]
mod confirmations_tests;
mod connection_polls;
mod poll;
#[cfg(test)]
mod poll_tests;

pub(crate) use self::confirmations::Confirmations;
pub use self::confirmations::{ConfigError, ConfigSource};
pub(crate) use self::connection_polls::ConnectionPolls;
pub(crate) use self::poll::Polling;
