//! By HTTPS: the content that each user gets.

use anyhow::Result;
use nudge_git::{Credential, GitError, Revision};
use zeroize::Zeroizing;

use crate::repository::{Client, Repository, text};
use crate::web::{TOKEN, USER, Web};

fn token(token: &str) -> Credential {
    Credential::Token { username: USER.to_owned(), token: Zeroizing::new(token.to_owned()) }
}

#[tokio::test]
async fn a_branch_is_fetched_with_a_token_and_unchanged_costs_one_look() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    repository.write("config/prod/sub/b.conf", "two\n")?;
    repository.write("other", "not this one")?;
    let id = repository.commit("second")?;
    let client = Client::new(&web.url("token/shop"), token(TOKEN), Some(web.certificates.ca.clone()))?;
    let commit = client.main().await?;
    assert_eq!(commit.id, id);
    assert_eq!(text(&commit), [("a.conf", "one\n".to_owned()), ("sub/b.conf", "two\n".to_owned())]);
    let asked = web.log()?.lines().count();
    assert!(client.fetch(Revision::Head, Some(&id)).await?.is_none());
    // The list of refs takes two requests in protocol 2.
    assert_eq!(web.log()?.lines().count(), asked + 2);
    Ok(())
}

#[tokio::test]
async fn a_wrong_token_is_refused() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    Repository::new(web.root(), "shop")?;
    for wrong in [token("another"), Credential::Anonymous] {
        let client = Client::new(&web.url("token/shop"), wrong, Some(web.certificates.ca.clone()))?;
        let refused = client.main().await;
        assert!(matches!(refused, Err(GitError::Credential(_))), "{refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn ids_may_be_longer() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::with(web.root(), "shop", "sha256")?;
    let client = Client::new(&web.url("token/shop"), token(TOKEN), Some(web.certificates.ca.clone()))?;
    let first = client.main().await?;
    assert_eq!(first.id.len(), 64);
    repository.write("config/prod/a.conf", "two\n")?;
    repository.commit("second")?;
    let second = client.main().await?;
    assert_eq!(text(&second), [("a.conf", "two\n".to_owned())]);
    let pinned = client.fetch(Revision::Commit(first.id.clone()), Some(&second.id)).await?;
    assert!(matches!(pinned, Some(commit) if commit.files == first.files));
    Ok(())
}
