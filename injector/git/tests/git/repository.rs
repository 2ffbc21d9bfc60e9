//! Repositories to serve, and a folder for the mirrors of a test.

use anyhow::Result;
use nudge_git::{Commit, Credential, FetchRequest, GitError, GitUrl, Mirrors, Revision};
use nudge_outbound::Reach;
pub(crate) use nudge_tests::servers::git_repository::{Repository, git};
use tempfile::TempDir;

/// A folder of mirrors, and the default request.
pub(crate) struct Client {
    pub(crate) folder: TempDir,
    pub(crate) mirrors: Mirrors,
    pub(crate) reach: Reach,
    pub(crate) url: GitUrl,
    pub(crate) credential: Credential,
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) path: String,
    pub(crate) lfs: bool,
    pub(crate) signers: Option<String>,
}

/// The bound of all mirrors of a test.
const MAX_MIRRORS_BYTES: u64 = 64 * 1024 * 1024;

impl Client {
    pub(crate) fn new(url: &str, credential: Credential, ca: Option<Vec<u8>>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mirrors = Mirrors::new(folder.path().join("mirrors"), MAX_MIRRORS_BYTES);
        let (url, path) = (GitUrl::parse(url)?, "config/prod".to_owned());
        Ok(Self { folder, mirrors, reach: Reach::Anywhere, url, credential, ca, path, lfs: false, signers: None })
    }

    pub(crate) async fn fetch(&self, revision: Revision, known: Option<&str>) -> Result<Option<Commit>, GitError> {
        self.fetch_if(revision, known, &|_| true).await
    }

    pub(crate) async fn fetch_if(
        &self,
        revision: Revision,
        known: Option<&str>,
        is_wanted: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<Option<Commit>, GitError> {
        self.fetch_from(&self.url, revision, known, is_wanted).await
    }

    async fn fetch_from(
        &self,
        url: &GitUrl,
        revision: Revision,
        known: Option<&str>,
        is_wanted: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<Option<Commit>, GitError> {
        let request = FetchRequest {
            url,
            revision: &revision,
            path: &self.path,
            credential: &self.credential,
            reach: &self.reach,
            ca: self.ca.as_deref(),
            lfs: self.lfs,
            allowed_signers: self.signers.as_deref(),
            is_wanted,
        };
        self.mirrors.fetch(&request, known).await
    }

    /// The commit of the branch main.
    pub(crate) async fn main(&self) -> Result<Commit, GitError> {
        self.main_of(&self.url).await
    }

    /// That of another repository, with all else alike.
    pub(crate) async fn main_of(&self, url: &GitUrl) -> Result<Commit, GitError> {
        match self.fetch_from(url, Revision::Branch("main".to_owned()), None, &|_| true).await? {
            Some(commit) => Ok(commit),
            // Nothing is known.
            None => Err(GitError::Broken),
        }
    }
}

/// Returns the files of the commit as text.
pub(crate) fn text(commit: &Commit) -> Vec<(&str, String)> {
    commit.files.iter().map(|(path, content)| (path.as_str(), String::from_utf8_lossy(content).into_owned())).collect()
}
