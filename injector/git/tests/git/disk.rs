//! A disk that is full.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use nudge_git::{Credential, GitError, Mirrors};
use nudge_tests::tools;

use crate::bounds::noise;
use crate::repository::{Client, Repository};
use crate::web::Web;

/// A small file system, which is removed with this.
struct Small<'a>(&'a Path);

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_named_and_nothing_is_left_on_it() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(folder.path()).output();
    if !mounted.is_ok_and(|it| it.status.success()) {
        tools::skipped("a small file system can't be mounted");
        return Ok(());
    }
    let _small = Small(folder.path());
    let repository = Repository::new(web.root(), "shop")?;
    let mut client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    client.mirrors = Mirrors::new(folder.path().to_owned(), 64 << 20);
    client.main().await?;
    repository.write("config/prod/noise", noise(2_500_000)?)?;
    repository.commit("noise")?;
    let full = client.main().await;
    assert!(matches!(full, Err(GitError::DiskFull)), "{full:?}");
    assert!(client.mirrors.bytes() < 100_000, "{}", client.mirrors.bytes());
    Ok(())
}
