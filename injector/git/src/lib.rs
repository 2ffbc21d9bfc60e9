//! Fetches the files below one path of a git repository, at one commit, by the git program of the distribution.
// The crate computes with numbers that others send, so nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod app;
mod commit_signer;
mod credential;
mod error;
mod http;
mod lfs;
mod mirror;
mod mirrors;
#[doc(hidden)]
pub mod output_parsers;
mod pointer;
mod program;
mod reference;
mod request;
mod session;
mod settings;
mod stderr;
mod tree;

pub use app::App;
pub use credential::Credential;
pub use error::GitError;
pub use mirrors::{MAX_MIRROR_BYTES, Mirrors};
pub use program::PROCESS_MIB;
pub use request::{Commit, FetchRequest};

pub use nudge_core::remote::{GitUrl, GitUrlError, Revision, RevisionError};
