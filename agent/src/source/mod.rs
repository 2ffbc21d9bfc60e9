//! Where versions come from, and the last good content of every config.

pub mod dir;
pub mod hub;
mod reminder;
mod store;

use std::sync::Arc;

use nudge_protocol::ConfigName;
use nudge_protocol::status::ProblemReason;

use crate::content::VersionContent;

pub use reminder::Reminder;
pub use store::{Applied, Store};

/// Why a config can't be read: a reason for programs and a message for people, without any value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason.
    pub reason: ProblemReason,
    /// What is wrong, and what to do.
    pub message: String,
}

/// What a source found for one config.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The config.
    pub config: ConfigName,
    /// The content of the version that is current at the source, or why it can't be read.
    pub result: Result<Arc<VersionContent>, Fault>,
}
