//! Pulls the files of an OCI artifact or image, and pushes files as an artifact.
//!
//! A credential is sent to the registry's own host and port, and to a token realm elsewhere only if the caller agrees.
//! Content from a registry is checked by its digest, and unpacked in memory within bounds.
// The crate computes with numbers that others send, so nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod archive;
mod challenge;
mod credential;
mod digest;
mod error;
mod frames;
mod layers;
#[cfg(test)]
mod layers_tests;
mod manifest;
mod pull;
mod push;
mod session;
mod tags;
mod url;

pub use archive::{ArchiveError, Layer, Limits, Whiteouts, unpack};
pub use challenge::{Challenge, parse_challenges};
pub use credential::{Credential, CredentialError, credential_of};
pub use error::OciError;
pub use pull::{Artifact, PULL_MIB, PullRequest};
pub use session::Registry;

pub use nudge_core::remote::{ArtifactLocation, OciReference, Pick, PickError, ReferenceError};
