//! Repositories for a git server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs git with settings that are the same everywhere.
pub fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
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
pub struct Repository {
    work: PathBuf,
    served: PathBuf,
}

impl Repository {
    /// Creates a repository in a folder, under a name, with one file.
    pub fn new(root: &Path, name: &str) -> Result<Self> {
        Self::with(root, name, "sha1")
    }

    /// Returns the same, with ids by this digest.
    pub fn with(root: &Path, name: &str, format: &str) -> Result<Self> {
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

    /// Returns the work tree.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Returns what is served.
    pub fn served(&self) -> &Path {
        &self.served
    }

    /// Writes a file of the work tree.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.work.join(path);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        Ok(fs::write(path, content)?)
    }

    /// Commits all files, and publishes that. The id of the commit.
    pub fn commit(&self, message: &str) -> Result<String> {
        self.git(&["add", "-A"])?;
        self.git(&["commit", "-q", "--allow-empty", "-m", message])?;
        self.publish()?;
        self.git(&["rev-parse", "HEAD"])
    }

    /// Publishes all refs, whatever the server has.
    pub fn publish(&self) -> Result<()> {
        let to = self.served.display().to_string();
        self.git(&["push", "-q", "--mirror", "--force", &to]).map(drop)
    }

    /// Runs git in the work tree.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        git(&self.work, arguments)
    }
}
