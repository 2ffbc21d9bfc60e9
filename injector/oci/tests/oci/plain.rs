//! Pushed content is pulled again.

use anyhow::{Result, bail, ensure};
use nudge_oci::{Credential, OciError, Pick, PullRequest};

use crate::asking::{all, anywhere, files, plain, pulled, refused, tag};
use crate::registry::DockerRegistry;
use crate::stand_in::{StandIn, answer, fault};

const NOBODY: Credential = Credential::Anonymous;

#[tokio::test]
async fn what_is_pushed_is_pulled() -> Result<()> {
    let (server, registry) = (DockerRegistry::start("", "").await?, anywhere());
    let reference = plain(&server.host())?;
    let content = files([("config/prod/app.yaml", "a: 1\n"), ("config/test/app.yaml", "a: 2\n")]);
    let digest = registry.push(&reference, "1.0.0", &content, &NOBODY, &|_| false).await?;
    let by = [tag("1.0.0"), Pick::Semver("1".into()), Pick::Digest(digest.clone())];
    for wanted in &by {
        let request = all(&reference, wanted);
        let artifact = pulled(&registry, &request).await?;
        ensure!(artifact.digest == digest && artifact.files == content, "{artifact:?}");
        ensure!(!format!("{artifact:?}").contains("97, 58"), "content is shown");
        let None = registry.pull(&request, Some(&digest)).await? else { bail!("changed: {wanted:?}") };
    }
    let wanted = tag("1.0.0");
    let of = |path| PullRequest { path, ..all(&reference, &wanted) };
    ensure!(pulled(&registry, &of("config/prod")).await?.files == files([("app.yaml", "a: 1\n")]));
    ensure!(pulled(&registry, &of("/config/prod/app.yaml")).await?.files == files([("app.yaml", "a: 1\n")]));
    let some = PullRequest { is_wanted: &|path| path.starts_with("test/"), ..of("config") };
    ensure!(pulled(&registry, &some).await?.files == files([("test/app.yaml", "a: 2\n")]));
    let none = refused(&registry, &of("config/none")).await?;
    ensure!(matches!(&none, OciError::NoFiles(path) if path == "config/none"), "{none}");
    let outside = refused(&registry, &of("config/../..")).await?;
    ensure!(matches!(outside, OciError::Path(_)), "{outside}");
    Ok(())
}

#[tokio::test]
async fn a_tag_moves_and_the_highest_one_is_found() -> Result<()> {
    let (server, registry) = (DockerRegistry::start("", "").await?, anywhere());
    let reference = plain(&server.host())?;
    let mut digests = Vec::new();
    for (name, text) in [("1.9.0", "9"), ("v1.10.0", "10"), ("2.0.0-rc.1", "rc"), ("latest", "x")] {
        digests.push(registry.push(&reference, name, &files([("a", text)]), &NOBODY, &|_| false).await?);
    }
    let wanted = Pick::Semver(">=1.2".into());
    let request = all(&reference, &wanted);
    ensure!(pulled(&registry, &request).await?.digest == digests[1]);
    let moved = registry.push(&reference, "v1.10.0", &files([("a", "11")]), &NOBODY, &|_| false).await?;
    let Some(found) = registry.pull(&request, Some(&digests[1])).await? else { bail!("unchanged") };
    ensure!(found.digest == moved && found.files == files([("a", "11")]));
    let none = Pick::Semver("3".into());
    let error = refused(&registry, &all(&reference, &none)).await?;
    ensure!(matches!(error, OciError::NoMatch { tags: 4, .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_is_said() -> Result<()> {
    let (server, registry) = (DockerRegistry::start("", "").await?, anywhere());
    let reference = plain(&server.host())?;
    for wanted in [tag("1"), Pick::Semver("1".into())] {
        let error = refused(&registry, &all(&reference, &wanted)).await?;
        let by_tag = matches!(wanted, Pick::Tag(_)) && matches!(error, OciError::NoVersion { .. });
        ensure!(by_tag || matches!(error, OciError::NoRepository(_)), "{error:?}");
    }
    registry.push(&reference, "1", &files([("a", "1")]), &NOBODY, &|_| false).await?;
    let digest = Pick::Digest(format!("sha256:{}", "0".repeat(64)));
    for wanted in [tag("2"), digest] {
        let error = refused(&registry, &all(&reference, &wanted)).await?;
        ensure!(matches!(error, OciError::NoVersion { .. }), "{error:?}");
    }
    let nothing = registry.push(&reference, "1", &files([]), &NOBODY, &|_| false).await;
    ensure!(matches!(nothing, Err(OciError::NoFiles(_))), "{nothing:?}");
    for path in ["../a", "/a", "a//b", ""] {
        let outside = registry.push(&reference, "1", &files([(path, "1")]), &NOBODY, &|_| false).await;
        ensure!(matches!(outside, Err(OciError::Path(_))), "{path}: {outside:?}");
    }
    let large = files([("a", &"x".repeat(3 << 20)), ("b", "1")]);
    let large = registry.push(&reference, "1", &large, &NOBODY, &|_| false).await;
    ensure!(matches!(large, Err(OciError::TooLarge { .. })), "{large:?}");
    Ok(())
}

/// Blobs that are there are not sent, and the digest is the same wherever and whenever it is pushed.
#[tokio::test]
async fn the_same_files_are_the_same_artifact() -> Result<()> {
    let server = StandIn::start(|asked| match (asked.method.as_str(), asked.path.as_str()) {
        ("HEAD", _) => answer(200, &[], ""),
        ("PUT", "/v2/team/shop/manifests/1") => answer(201, &[], ""),
        _ => fault(400, "UNSUPPORTED"),
    })
    .await?;
    let reference = plain(&server.host())?;
    let digest = anywhere().push(&reference, "1", &files([("b", "2"), ("a/x", "1")]), &NOBODY, &|_| false).await?;
    // The digest of a later release, too: a comparison of digests must not show a change if there is none.
    ensure!(digest == "sha256:ee695ebef1f3b443d181b1418d9507c4c8b5550f17d764528fde71155341ea9b", "{digest}");
    let asked: Vec<String> = server.asked().into_iter().map(|it| it.method).collect();
    ensure!(asked == ["HEAD", "HEAD", "PUT"], "{asked:?}");
    Ok(())
}
