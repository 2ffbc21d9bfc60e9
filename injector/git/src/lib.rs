//! The files of a git repository under one path, at one commit, by the git program of the distribution.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod app;
mod commit_signer;
mod credential;
mod error;
mod http;
mod lfs;
mod mirror;
mod mirrors;
mod pointer;
mod program;
mod reference;
mod request;
mod session;
mod settings;
mod stderr;
#[doc(hidden)]
pub mod text;
mod tree;

pub use app::App;
pub use credential::Credential;
pub use error::GitError;
pub use mirrors::{MOST_MIRROR, Mirrors};
pub use program::PROCESS_MIB;
pub use request::{Commit, Fetched, Request};

pub use nudge_core::remote::{GitUrl, GitUrlError, Revision, RevisionError};
