//! The request for files of a repository, and the resulting commit.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use nudge_core::remote::{GitUrl, Revision, check_path};
use nudge_outbound::Reach;
use zeroize::Zeroizing;

use crate::credential::Credential;
use crate::error::GitError;

/// A request for files of a repository.
pub struct FetchRequest<'a> {
    /// The URL of the repository.
    pub url: &'a GitUrl,
    /// The revision that selects the commit.
    pub revision: &'a Revision,
    /// The folder, or the file. An empty path is the root.
    pub path: &'a str,
    /// The credential for the server.
    pub credential: &'a Credential,
    /// The addresses that the fetch may connect to.
    pub reach: &'a Reach,
    /// The trusted authorities, as PEM, in place of those of the image.
    pub ca: Option<&'a [u8]>,
    /// Whether the contents of files that are kept by Git LFS are fetched.
    pub lfs: bool,
    /// The allowed signers, in the format of ssh-keygen(1). One of them must have signed the commit or its annotated
    /// tag.
    pub allowed_signers: Option<&'a str>,
    /// Whether a file is wanted, by its path below `path`. It is called before the content of a file is fetched.
    pub is_wanted: &'a (dyn Fn(&str) -> bool + Send + Sync),
}

impl FetchRequest<'_> {
    /// Checks the parts of the request against each other.
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

/// A commit, with its wanted files.
pub struct Commit {
    /// The object ID of the commit, in hex digits.
    pub id: String,
    /// The time that its committer wrote.
    pub time: Timestamp,
    /// The signer, as the file of allowed signers names him.
    pub signer: Option<String>,
    /// The contents, by the path below the path of the request. If the request names a file, its key is the name of the
    /// file.
    pub files: BTreeMap<String, Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Commit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<_> = self.files.keys().collect();
        formatter
            .debug_struct("Commit")
            .field("id", &self.id)
            .field("time", &self.time)
            .field("signer", &self.signer)
            .field("files", &files)
            .finish()
    }
}
