//! Servers that give one byte a second: they are left, and hold up nobody else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nudge_git::{Credential, GitError, GitUrl};
use nudge_tests::eventually;

use crate::answers::Answers;
use crate::repository::{Client, Repository, text};
use crate::ssh::Ssh;
use crate::web::{Certificates, Web};

/// How long a fetch may take in these tests: less than git gives a slow server, and enough for another fetch on a busy
/// machine.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns a part of nginx's configuration: /slow serves the same as /open, with these settings.
fn slow(settings: &str) -> String {
    format!(
        "location ~ ^/slow(/.*)$ {{ {settings} proxy_pass https://$server_addr:$server_port/open$1$is_args$args; \
         proxy_http_version 1.1; proxy_set_header Git-Protocol $http_git_protocol; }}\n"
    )
}

/// Fetches from a slow server, and meanwhile from another one with the same mirrors. Why the slow one was left.
async fn beside(client: &Client, other: &GitUrl) -> Result<GitError> {
    let mut slow = pin!(client.main());
    tokio::select! {
        biased;
        slow = &mut slow => bail!("nothing else came before {slow:?}"),
        other = client.main_of(other) => ensure!(text(&other?)[0] == ("a.conf", "one\n".to_owned()), "other files"),
    }
    let left = tokio::time::timeout(FETCH_TIMEOUT * 4, slow).await.context("it is still waited for")?;
    left.err().context("it was not slow")
}

#[tokio::test]
async fn a_server_by_https_is_left() -> Result<()> {
    let Some(web) = Web::start_first(&slow("limit_rate 1;")).await? else { return Ok(()) };
    Repository::new(web.root(), "shop")?;
    Repository::new(web.root(), "other")?;
    let client = || Client::new(&web.url("slow/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()));
    let mut bounded = client()?;
    bounded.mirrors = bounded.mirrors.with_timeout(FETCH_TIMEOUT);
    let other = GitUrl::parse(&web.url("open/other"))?;
    // The second has the time of every fetch: git leaves the server before that.
    let by_default = client()?;
    let (ours, gits) = tokio::join!(beside(&bounded, &other), by_default.main());
    let ours = ours?;
    assert!(matches!(ours, GitError::TooSlow(15)), "{ours:?}");
    assert!(matches!(gits, Err(GitError::TooSlow(20))), "{gits:?}");
    Ok(())
}

#[tokio::test]
async fn a_server_of_lfs_is_left() -> Result<()> {
    // At the list of objects, and at an object itself.
    tokio::try_join!(lfs("POST"), lfs("GET")).map(drop)
}

/// Fetches from an LFS server that is slow for requests with this method.
async fn lfs(method: &str) -> Result<()> {
    let Some(giftless) = crate::giftless::start().await? else { return Ok(()) };
    let large = b"large\n".to_vec();
    let (pointer, (id, _)) = crate::lfs::pointer(&large);
    let settings = format!("if ($request_method = {method}) {{ set $limit_rate 1; }}");
    let locations = giftless.location("open", "") + &giftless.location("slow", &settings) + &slow("");
    let Some(web) = Web::start_first(&locations).await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    Repository::new(web.root(), "other")?;
    repository.write("config/prod/large", &pointer)?;
    repository.commit("large")?;
    crate::giftless::upload(&web, &giftless, "open/shop", &[large]).await?;
    let kept = giftless.object("slow/shop", &id);
    fs::create_dir_all(kept.parent().context("no folder")?)?;
    fs::copy(giftless.object("open/shop", &id), kept)?;
    let token = crate::giftless::credential(giftless.token("slow/shop", "read", 600)?);
    let mut client = Client::new(&web.url("slow/shop"), token, Some(web.certificates.ca.clone()))?;
    client.lfs = true;
    client.mirrors = client.mirrors.with_timeout(FETCH_TIMEOUT);
    let left = beside(&client, &GitUrl::parse(&web.url("open/other"))?).await?;
    assert!(matches!(left, GitError::TooSlow(15)), "{method}: {left:?}");
    let asked = async || {
        let mut lines = web.answered().await.ok()?.into_iter();
        lines.any(|it| it.starts_with(method) && it.contains("/slow/shop.git/info/lfs/")).then_some(())
    };
    eventually(Duration::from_secs(10), "the LFS server was asked", asked).await
}

#[tokio::test]
async fn a_server_by_ssh_is_left() -> Result<()> {
    let Some(ssh) = Ssh::start().await? else { return Ok(()) };
    let (shop, other) = (Repository::new(ssh.root(), "shop")?, Repository::new(ssh.root(), "other")?);
    // In place of git's program, which serves the other repository alone: the beginning of a list of refs, one letter a
    // second.
    let program = ssh.root().join("bin/git-upload-pack");
    let script =
        "case $1 in */other) exec git upload-pack \"$@\";; esac\nprintf 00ff; while printf x; do sleep 1; done";
    fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let mut client = Client::new(&ssh.url(&shop), ssh.credential("mine", ssh.known("host")?)?, None)?;
    client.mirrors = client.mirrors.with_timeout(FETCH_TIMEOUT);
    let left = beside(&client, &GitUrl::parse(&ssh.url(&other))?).await?;
    assert!(matches!(left, GitError::TooSlow(15)), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn what_a_fetch_has_left_that_is_given_up_is_counted() -> Result<()> {
    let certificates = Certificates::new()?;
    let server = Answers::start(&certificates, Arc::new(|_| None)).await?;
    let url = format!("https://localhost:{}/shop", server.port);
    let client = Client::new(&url, Credential::Anonymous, Some(certificates.ca.clone()))?;
    // As of a fetch that has begun to receive.
    let (folder, pack) = (client.folder.path().join("mirrors"), vec![b'x'; 64 * 1024]);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("1-pack"), &pack)?;
    let asked = async || (!server.asked().is_empty()).then_some(());
    tokio::select! {
        done = client.main() => bail!("the server has answered: {:?}", done.err()),
        asked = eventually(Duration::from_secs(30), "git asks", asked) => asked?,
    }
    let counted = async || (client.mirrors.bytes() >= pack.len() as u64).then_some(());
    eventually(Duration::from_secs(10), "what is left is counted", counted).await
}
