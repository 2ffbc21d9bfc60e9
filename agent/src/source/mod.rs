//! The sources of versions, and the last good content of every config.

pub mod dir;
mod fault_reminder;
mod good_contents;
pub mod hub;

use std::sync::Arc;

use nudge_protocol::ConfigName;
use nudge_protocol::status::ProblemReason;

use crate::content::VersionContent;

pub use fault_reminder::FaultReminder;
pub use good_contents::{Applied, Store};

/// The fault of a config that can't be read: a reason for programs and a message for people, without any value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFault {
    /// The reason.
    pub reason: ProblemReason,
    /// The fault and its remedy.
    pub message: String,
}

/// The reading of one config.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The name of the config.
    pub config: ConfigName,
    /// The content of the version that is current at the source, or the fault.
    pub result: Result<Arc<VersionContent>, SourceFault>,
}
