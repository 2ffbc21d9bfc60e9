//! What is asked of a repository, and what comes of it.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use nudge_core::remote::{GitUrl, Revision, check_path};
use nudge_outbound::Reach;
use zeroize::Zeroizing;

use crate::credential::Credential;
use crate::error::GitError;

/// What is asked for.
pub struct Request<'a> {
    /// The repository.
    pub url: &'a GitUrl,
    /// The revision.
    pub revision: &'a Revision,
    /// The folder, or the file. Empty stands for all.
    pub path: &'a str,
    /// Who asks.
    pub credential: &'a Credential,
    /// Where requests may go.
    pub reach: &'a Reach,
    /// Authorities, as PEM, in place of those of the image.
    pub ca: Option<&'a [u8]>,
    /// Whether files that are kept by Git LFS are fetched from there.
    pub lfs: bool,
    /// The commit, or the annotated tag, must be signed by one of these: the file of allowed signers of ssh-keygen(1).
    pub allowed_signers: Option<&'a str>,
    /// Which files are of use, by their path below `path`. It is asked before the content of a file is fetched.
    pub wanted: &'a (dyn Fn(&str) -> bool + Send + Sync),
}

impl Request<'_> {
    /// Whether it can be asked at all.
    pub(crate) fn check(&self) -> Result<(), GitError> {
        self.revision.check()?;
        check_path(self.path)?;
        match (self.url.is_ssh(), self.credential) {
            (true, Credential::Ssh { .. })
            | (false, Credential::Anonymous | Credential::Token { .. } | Credential::App(_)) => Ok(()),
            (true, _) => Err(GitError::NeedsKey),
            (false, _) => Err(GitError::KeyForHttps),
        }
    }
}

/// What came.
#[derive(Debug)]
pub enum Fetched {
    /// The revision stands for the commit that the caller knows.
    Unchanged,
    /// Another one.
    Commit(Commit),
}

/// A commit, and files of it.
pub struct Commit {
    /// Its id.
    pub id: String,
    /// When it was committed.
    pub time: Timestamp,
    /// Who signed it, as the file of allowed signers names him.
    pub signer: Option<String>,
    /// Content by the path below the path that was asked for; by its own name if that is a file.
    pub files: BTreeMap<String, Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<_> = self.files.keys().collect();
        f.debug_struct("Commit")
            .field("id", &self.id)
            .field("time", &self.time)
            .field("signer", &self.signer)
            .field("files", &files)
            .finish()
    }
}
