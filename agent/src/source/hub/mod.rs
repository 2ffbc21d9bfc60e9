//! The `hub` source: the versions that the control plane assigns, the last good contents, and the versions mounted at
//! the pod's start.
//!
//! Decisions do no I/O: [`PollRetry`] decides when to poll, [`ReplyReader`] reads the reply, [`LocalVersions`] decides
//! which contents are accepted. [`HubClient`] and the files are thin shells around these types.

mod client;
mod credentials;
mod failure;
mod hub_url;
mod interrupt;
mod last_good;
mod local_versions;
mod mounted_versions;
mod poll_retry;
mod ran_contents;
mod reply;

pub use client::{HubClient, PollAnswer};
pub(crate) use credentials::client_config;
pub use credentials::{Credentials, HubCa};
pub use failure::{FailureKind, HubFailure};
pub use hub_url::{HubUrl, HubUrlError};
pub use interrupt::Interrupt;
pub use last_good::LastGood;
pub use local_versions::{LocalVersions, Revision, TakenReply};
pub use mounted_versions::{MountedError, MountedVersion, read_mounted};
pub use poll_retry::{NextPoll, PollEnd, PollRetry, retry_wait};
pub use ran_contents::RanContents;
pub use reply::{PollReply, ReceivedBlock, ReplyError, ReplyReader, write_reply};
