//! The files of an OCI artifact or image at one digest, and the other way: files become an artifact.
//!
//! A credential is sent to the registry's own host and port, and to a token realm elsewhere only if the caller agrees. What a registry sends is
//! checked by its digest, and unpacked in memory within bounds.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod archive;
mod challenge;
mod credential;
mod digest;
mod error;
mod frames;
mod highest_tag;
mod layers;
#[cfg(test)]
mod layers_tests;
mod manifest;
mod pull;
mod push;
mod session;
mod url;

pub use archive::{ArchiveError, Layer, Limits, unpack};
pub use challenge::{Challenge, read as read_challenges};
pub use credential::{Credential, CredentialError, credential_of};
pub use error::OciError;
pub use pull::{Artifact, PULL_MIB, Pulled, Request};
pub use session::Registry;

pub use nudge_core::remote::{Located, Pick, PickError, Reference, ReferenceError};
