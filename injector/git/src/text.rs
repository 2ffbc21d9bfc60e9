//! What servers, repositories and git itself say, as this crate reads it. It is there for the fuzz target `git_text` alone.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nudge_core::outbound::Address;
use nudge_core::remote::{GitUrl, Revision};
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::mirror::{self, as_file};
use crate::{commit_signer, lfs, mirrors, pointer, reference, session, settings, stderr, tree};

/// What a revision stands for.
pub struct Found {
    /// The commit.
    pub commit: String,
    /// The object of an annotated tag.
    pub tag: Option<String>,
    /// The name of the ref.
    pub name: Option<String>,
}

/// The revision in what `git ls-remote` prints.
pub fn find(revision: &Revision, listed: &[u8]) -> Option<Found> {
    let reference::ResolvedRef { commit, tag, name } = reference::find(revision, listed)?;
    Some(Found { commit, tag, name })
}

/// The id and the path of a file, and whether it can be given.
pub type Entry = (String, String, Result<(), GitError>);

/// The entries in what `git ls-tree -z` prints.
pub fn entries(listed: &[u8]) -> Result<Vec<Entry>, GitError> {
    let entries = tree::entries(listed)?;
    Ok(entries.into_iter().map(|entry| (entry.id.clone(), entry.path.clone(), as_file(&entry))).collect())
}

/// The sizes in what `git cat-file --batch-check` prints.
pub fn sizes(printed: &[u8]) -> BTreeMap<String, usize> {
    mirror::sizes(printed)
}

/// The contents in what `git cat-file --batch` prints.
pub fn contents(printed: &[u8]) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, GitError> {
    mirror::contents(printed)
}

/// When a commit was committed.
pub fn committed(commit: &[u8]) -> Result<Timestamp, GitError> {
    mirrors::committed(commit)
}

/// The kind of a fault, by what git and ssh say.
pub fn fault(said: &[u8]) -> String {
    format!("{:?}", stderr::fault(said))
}

/// Returns whether a tag has this name and points at this commit.
pub fn is_of(tag: &[u8], name: &str, commit: &str) -> bool {
    commit_signer::is_of(tag, name, commit)
}

/// The signer that ssh-keygen names.
pub fn signed(good: bool, said: &[u8]) -> Option<String> {
    commit_signer::signed(good, said)
}

/// Lines for `known_hosts` of what ssh-keyscan prints.
pub fn host_keys(host: &str, scanned: &[u8]) -> Vec<String> {
    session::host_keys(host, scanned)
}

/// The arguments of ssh, for a server by SSH.
pub fn ssh_arguments(url: &GitUrl) -> Option<Vec<String>> {
    url.is_ssh().then(|| settings::ssh_arguments(url, ([192, 0, 2, 1], url.address().port).into()))
}

/// The id and the size of an LFS pointer.
pub fn pointer(content: &[u8]) -> Option<(String, usize)> {
    pointer::pointer(content).map(|it| (it.id, it.size))
}

/// Where the LFS API of a URL is, if that is on the host of the repository.
pub fn lfs_server(url: &str, repository: &GitUrl) -> Result<Address, GitError> {
    lfs::on_host(url, repository.address(), repository.is_ssh())
}

/// How an object of an LFS server is asked for.
pub struct Download {
    /// The server.
    pub address: Address,
    /// Path and query.
    pub target: String,
    /// Names of the headers that come with it.
    pub headers: Vec<String>,
}

/// The downloads in an answer of the LFS API, by the ids of their objects. `None` for those that can't be used.
pub fn downloads(answer: &[u8]) -> Result<BTreeMap<String, Option<Download>>, GitError> {
    let used = |action: lfs::Action| {
        let (address, target) = lfs::located(&action.href)?;
        let headers = lfs::headers(&action.header).keys().map(|name| name.as_str().to_owned()).collect();
        Some(Download { address, target, headers })
    };
    Ok(lfs::downloads(answer)?.into_iter().map(|(id, action)| (id, used(action))).collect())
}
