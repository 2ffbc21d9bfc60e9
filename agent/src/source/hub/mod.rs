//! The `hub` source: the control plane, what it said last, and what was mounted at the pod's start.
//!
//! Decisions are pure: [`Pace`] says when to ask, [`ReplyReader`] what came, [`Holdings`] what of it is taken in. [`HubClient`] and
//! the files are thin shells around them.

mod address;
mod bootstrap;
mod client;
mod failure;
mod holdings;
mod last_good;
mod pace;
mod reply;
mod trust;

pub use address::{HubUrl, HubUrlError};
pub use bootstrap::{BootstrapError, read_mounted};
pub use client::{Answer, HubClient};
pub use failure::{Failure, Kind};
pub use holdings::{Holdings, Taken};
pub use last_good::{LastGood, LastGoodError};
pub use pace::{Ask, Ended, Pace, pause};
pub use reply::{Reply, ReplyError, ReplyReader, Sent, write};
pub use trust::{CredentialFiles, Credentials};
