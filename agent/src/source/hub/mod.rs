//! The `hub` source: the control plane, what it said last, and what was mounted at the pod's start.
//!
//! Decisions are pure: [`Pace`] says when to ask, [`ReplyReader`] what came, [`LocalVersions`] what of it is taken in. [`HubClient`] and
//! the files are thin shells around them.

mod address;
mod bootstrap;
mod client;
mod failure;
mod last_good;
mod local_versions;
mod pace;
mod reply;
mod trust;

pub use address::{HubUrl, HubUrlError};
pub use bootstrap::{BootstrapError, read_mounted};
pub use client::{Answer, HubClient};
pub use failure::{Failure, Kind};
pub use last_good::{LastGood, LastGoodError};
pub use local_versions::{LocalVersions, Taken};
pub use pace::{Ask, Ended, Pace, pause};
pub use reply::{Reply, ReplyError, ReplyReader, Sent, write};
pub use trust::{CredentialFiles, Credentials};
