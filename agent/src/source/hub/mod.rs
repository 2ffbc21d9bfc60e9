//! The `hub` source: what the control plane assigns, the last good contents, and the versions mounted at the pod's start.
//!
//! Decisions are pure: [`PollRetry`] says when to poll, [`ReplyReader`] reads the reply, [`LocalVersions`] decides what is taken in.
//! [`HubClient`] and the files are thin shells around them.

mod address;
mod bootstrap;
mod client;
mod failure;
mod interrupt;
mod last_good;
mod local_versions;
mod poll_retry;
mod ran_contents;
mod reply;
mod trust;

pub use address::{HubUrl, HubUrlError};
pub use bootstrap::{BootstrapError, read_mounted};
pub use client::{Answer, HubClient};
pub use failure::{Failure, FailureKind};
pub use interrupt::Interrupt;
pub use last_good::{LastGood, LastGoodError};
pub use local_versions::{LocalVersions, TakenReply};
pub use poll_retry::{NextPoll, PollEnd, PollRetry, retry_wait};
pub use ran_contents::{Ran, RanFile};
pub use reply::{Reply, ReplyError, ReplyReader, Sent, write};
pub use trust::{CredentialFiles, Credentials, HubCa};
