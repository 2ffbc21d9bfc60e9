//! Sources against a real API server: what servers have becomes versions, by a control plane with its webhooks and a
//! process of the role sources that has the rights of its account and no others.

#![allow(clippy::print_stderr, reason = "times are for a person who runs it by hand")]

mod contention;
mod failing;
mod git;
mod oci;
mod pod;
mod publishing;
mod refused;
mod retention;
mod rotation;
pub(crate) mod scene;
mod slow;
mod takeover;
mod unchanged;
mod validity;
mod vault;
mod versions;
