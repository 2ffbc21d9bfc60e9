//! Parsers of the output of servers, repositories and git itself, for the fuzz target `git_text`.

use std::collections::BTreeMap;

use nudge_core::outbound::Address;
use nudge_core::remote::GitUrl;

use crate::error::GitError;
use crate::mirror::check_file;
use crate::{lfs, settings, stderr, tree};

pub use crate::commit_signer::{is_tag_of, parse_signer};
pub use crate::lfs::address_on_host;
pub use crate::mirror::{parse_contents, parse_sizes};
pub use crate::mirrors::parse_commit_time;
pub use crate::pointer::Pointer;
pub use crate::reference::{ResolvedRef, find_revision};
pub use crate::session::parse_host_keys;

/// An entry of a tree.
pub struct FileEntry {
    /// The id of the object.
    pub id: String,
    /// The path within the tree.
    pub path: String,
    /// Whether the entry is a file; otherwise why it can't be used.
    pub check: Result<(), GitError>,
}

/// Parses the output of `git ls-tree -z`.
pub fn parse_entries(printed: &[u8]) -> Result<Vec<FileEntry>, GitError> {
    let entries = tree::parse_entries(printed)?.into_iter();
    Ok(entries.map(|entry| FileEntry { check: check_file(&entry), id: entry.id, path: entry.path }).collect())
}

/// Returns the kind of a fault, by the messages of git and ssh.
pub fn fault(messages: &[u8]) -> String {
    format!("{:?}", stderr::GitFault::parse(messages))
}

/// Returns the arguments of ssh for an SSH server.
pub fn ssh_arguments(url: &GitUrl) -> Option<Vec<String>> {
    url.is_ssh().then(|| settings::ssh_arguments(url, ([192, 0, 2, 1], url.address().port).into()))
}

/// The request for an object of an LFS server.
pub struct Download {
    /// The address of the server.
    pub address: Address,
    /// The path and query.
    pub target: String,
    /// The names of the headers that are sent.
    pub headers: Vec<String>,
}

/// Parses an answer of the LFS API into downloads by the ids of their objects; `None` for those that can't be used.
pub fn parse_downloads(answer: &[u8]) -> Result<BTreeMap<String, Option<Download>>, GitError> {
    let download = |action: lfs::Action| {
        let (address, target) = lfs::parse_href(&action.href)?;
        let headers = lfs::usable_headers(&action.header).keys().map(|name| name.as_str().to_owned()).collect();
        Some(Download { address, target, headers })
    };
    Ok(lfs::parse_downloads(answer)?.into_iter().map(|(id, action)| (id, download(action))).collect())
}
