//! Where configuration comes from, and the memory of what was last good.

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

/// Why a config can't be read: a word for programs and a sentence for people, without any value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A word of a bounded set.
    pub reason: ProblemReason,
    /// What is wrong and the way out.
    pub message: String,
}

/// What a source found for one config.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The config.
    pub config: ConfigName,
    /// The content of the version that is current at the source, or why there is none to be had.
    pub result: Result<Arc<VersionContent>, Fault>,
}
