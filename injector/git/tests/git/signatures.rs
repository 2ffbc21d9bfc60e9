//! Only commits that one of the allowed signers has signed are accepted.

use std::path::Path;

use anyhow::Result;
use nudge_git::{Credential, GitError, Revision};

use crate::repository::{Client, Repository};
use crate::ssh::key;
use crate::web::Web;

/// Runs git, which signs by this key.
fn signed(repository: &Repository, key: &Path, arguments: &[&str]) -> Result<String> {
    let key = format!("user.signingKey={}", key.display());
    repository.git(&[&["-c", "gpg.format=ssh", "-c", &key], arguments].concat())
}

fn line(key: &str) -> String {
    key.split(' ').take(2).fold("a@example.com namespaces=\"git\"".to_owned(), |line, part| line + " " + part)
}

#[tokio::test]
async fn what_is_not_signed_by_one_of_them_is_refused() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let mut client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    let (mine, other) = (web.root().join("mine"), web.root().join("other"));
    client.signers = Some(line(&key(&mine, "")?));
    key(&other, "")?;
    assert!(matches!(client.main().await, Err(GitError::NotSigned(_))), "not signed at all");
    signed(&repository, &other, &["commit", "-q", "--allow-empty", "-S", "-m", "other"])?;
    repository.publish()?;
    assert!(matches!(client.main().await, Err(GitError::NotSigned(_))), "signed by another");
    signed(&repository, &mine, &["commit", "-q", "--allow-empty", "-S", "-m", "mine"])?;
    repository.publish()?;
    assert_eq!(client.main().await?.signer.as_deref(), Some("a@example.com"));

    // A commit derived from a signed commit is not signed.
    let text = repository.git(&["cat-file", "commit", "HEAD"])?.replace("\nmine", "\nyours") + "\n";
    std::fs::write(web.root().join("forged"), text)?;
    let forged =
        repository.git(&["hash-object", "-t", "commit", "-w", &web.root().join("forged").display().to_string()])?;
    repository.git(&["update-ref", "refs/heads/main", &forged])?;
    repository.publish()?;
    assert!(matches!(client.main().await, Err(GitError::NotSigned(_))), "forged");
    Ok(())
}

#[tokio::test]
async fn a_signed_tag_counts_for_its_commit_and_under_its_name() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let mut client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    let mine = web.root().join("mine");
    client.signers = Some(line(&key(&mine, "")?));
    signed(&repository, &mine, &["tag", "-s", "-m", "1", "v1.0.0"])?;
    repository.git(&["tag", "-a", "-m", "2", "v2.0.0"])?;
    let object = repository.git(&["rev-parse", "v1.0.0"])?;
    // An old tag that passes for the newest.
    repository.git(&["update-ref", "refs/tags/v3.0.0", &object])?;
    repository.publish()?;
    let of = async |range: &str| client.fetch(Revision::Semver(range.to_owned()), None).await;
    assert!(matches!(of("1").await?, Some(it) if it.signer.as_deref() == Some("a@example.com")));
    assert!(matches!(of("2").await, Err(GitError::NotSigned(_))));
    assert!(matches!(of("3").await, Err(GitError::NotSigned(_))));
    Ok(())
}
