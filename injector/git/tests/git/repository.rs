//! Repositories to serve, and a folder for the mirrors of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nudge_git::{Commit, Credential, Fetched, GitError, GitUrl, Mirrors, Request, Revision};
use nudge_outbound::Reach;
use tempfile::TempDir;

/// Runs git with settings that are the same everywhere.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(["-c", "init.defaultBranch=main", "-c", "user.name=A", "-c", "user.email=a@example.com"])
        .args(["-c", "commit.gpgSign=false", "-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(folder)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("LC_ALL", "C")])
        .output()
        .context("git")?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A work tree, and what of it is served.
pub(crate) struct Repository {
    work: PathBuf,
    served: PathBuf,
}

impl Repository {
    /// In a folder, under a name, with one file.
    pub(crate) fn new(root: &Path, name: &str) -> Result<Self> {
        Self::with(root, name, "sha1")
    }

    /// The same, with ids by this digest.
    pub(crate) fn with(root: &Path, name: &str, format: &str) -> Result<Self> {
        let format = format!("--object-format={format}");
        let it = Self { work: root.join(format!("work-{name}")), served: root.join(format!("served/{name}")) };
        fs::create_dir_all(&it.work)?;
        fs::create_dir_all(&it.served)?;
        git(&it.served, &["init", "-q", "--bare", &format, "."])?;
        // As a server has it that can do more than it must.
        git(&it.served, &["config", "uploadpack.allowFilter", "true"])?;
        git(&it.served, &["config", "receive.denyDeleteCurrent", "ignore"])?;
        git(&it.work, &["init", "-q", &format, "."])?;
        it.write("config/prod/a.conf", "one\n")?;
        it.commit("first")?;
        Ok(it)
    }

    pub(crate) fn work(&self) -> &Path {
        &self.work
    }

    pub(crate) fn served(&self) -> &Path {
        &self.served
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.work.join(path);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        Ok(fs::write(path, content)?)
    }

    /// Commits all files, and publishes that. The id of the commit.
    pub(crate) fn commit(&self, message: &str) -> Result<String> {
        self.git(&["add", "-A"])?;
        self.git(&["commit", "-q", "--allow-empty", "-m", message])?;
        self.publish()?;
        self.git(&["rev-parse", "HEAD"])
    }

    /// Publishes all refs, whatever the server has.
    pub(crate) fn publish(&self) -> Result<()> {
        let to = self.served.display().to_string();
        self.git(&["push", "-q", "--mirror", "--force", &to]).map(drop)
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String> {
        git(&self.work, arguments)
    }
}

/// A folder of mirrors, and what is asked by default.
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
const MOST: u64 = 64 * 1024 * 1024;

impl Client {
    pub(crate) fn new(url: &str, credential: Credential, ca: Option<Vec<u8>>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mirrors = Mirrors::new(folder.path().join("mirrors"), MOST);
        let (url, path) = (GitUrl::parse(url)?, "config/prod".to_owned());
        Ok(Self { folder, mirrors, reach: Reach::Anywhere, url, credential, ca, path, lfs: false, signers: None })
    }

    pub(crate) async fn fetch(&self, revision: Revision, known: Option<&str>) -> Result<Fetched, GitError> {
        self.fetch_if(revision, known, &|_| true).await
    }

    pub(crate) async fn fetch_if(
        &self,
        revision: Revision,
        known: Option<&str>,
        wanted: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<Fetched, GitError> {
        let request = Request {
            url: &self.url,
            revision: &revision,
            path: &self.path,
            credential: &self.credential,
            reach: &self.reach,
            ca: self.ca.as_deref(),
            lfs: self.lfs,
            allowed_signers: self.signers.as_deref(),
            wanted,
        };
        self.mirrors.fetch(&request, known).await
    }

    /// The commit of the branch main.
    pub(crate) async fn main(&self) -> Result<Commit, GitError> {
        match self.fetch(Revision::Branch("main".to_owned()), None).await? {
            Fetched::Commit(commit) => Ok(commit),
            // Nothing is known.
            Fetched::Unchanged => Err(GitError::Broken),
        }
    }
}

/// Its files as text.
pub(crate) fn text(commit: &Commit) -> Vec<(&str, String)> {
    commit.files.iter().map(|(path, content)| (path.as_str(), String::from_utf8_lossy(content).into_owned())).collect()
}
