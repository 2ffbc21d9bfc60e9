//! Faults of a server, a repository or a mirror, and the messages that the user reads.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nudge_git::{Credential, GitError, GitUrl, Revision};
use nudge_outbound::{ConnectError, Reach};
use nudge_tests::{eventually, ports};
use zeroize::Zeroizing;

use crate::answers::{Answers, answer};
use crate::repository::{Client, Repository, text};
use crate::web::{Certificates, TOKEN, USER, Web};

fn token() -> Credential {
    Credential::Token { username: USER.to_owned(), token: Zeroizing::new(TOKEN.to_owned()) }
}

fn is_secret(text: &str) -> bool {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    text.contains(TOKEN) || text.contains(&BASE64_STANDARD.encode(format!("{USER}:{TOKEN}")))
}

#[tokio::test]
async fn a_server_that_is_away_or_not_the_one_is_named() -> Result<()> {
    let nobody = ports::Nobody::new()?;
    let certificates = Certificates::new()?;
    let url = format!("https://localhost:{}/shop", nobody.address.port());
    let client = Client::new(&url, token(), Some(certificates.ca.clone()))?;
    let away = client.main().await;
    assert!(matches!(away, Err(GitError::Unreachable(_))), "{away:?}");
    let client = Client::new("https://nobody.invalid/shop", token(), None)?;
    assert!(matches!(client.main().await, Err(GitError::Connect(ConnectError::Unknown(_)))));

    let server = Answers::start(&certificates, Arc::new(|_| Some(answer("200 OK", "", "")))).await?;
    let others = Certificates::new()?;
    for ca in [Some(others.ca), None] {
        let client = Client::new(&format!("https://localhost:{}/shop", server.port), token(), ca)?;
        let refused = client.main().await;
        assert!(matches!(refused, Err(GitError::Connect(ConnectError::Tls { .. }))), "{refused:?}");
    }
    assert!(server.asked().is_empty(), "something was sent to a server that proved nothing");
    Ok(())
}

#[tokio::test]
async fn nothing_is_sent_to_this_machine_from_a_cluster() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let mut client = Client::new(&web.url("token/shop"), token(), Some(web.certificates.ca.clone()))?;
    client.reach = Reach::Outside(Arc::default());
    for url in [
        web.url("token/shop"),
        format!("ssh://git@127.0.0.1:{}/shop", web.port),
        "https://169.254.169.254/shop".to_owned(),
    ] {
        client.url = GitUrl::parse(&url)?;
        if url.starts_with("ssh") {
            client.credential = Credential::Ssh { key: Zeroizing::default(), known_hosts: String::new() };
        } else {
            client.credential = token();
        }
        let refused = client.main().await;
        assert!(matches!(refused, Err(GitError::Connect(ConnectError::Refused { .. }))), "{url}: {refused:?}");
    }
    assert!(web.log().unwrap_or_default().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_followed_by_nobody() -> Result<()> {
    let certificates = Certificates::new()?;
    let other = Answers::start(&certificates, Arc::new(|_| Some(answer("200 OK", "", "")))).await?;
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: https://localhost:{}/shop/info/refs?service=git-upload-pack\r\n", other.port);
        let server = Answers::start(&certificates, Arc::new(move |_| Some(answer(status, &location, "")))).await?;
        let client =
            Client::new(&format!("https://localhost:{}/shop", server.port), token(), Some(certificates.ca.clone()))?;
        let moved = client.main().await;
        assert!(matches!(moved, Err(GitError::Redirect(_))), "{status}: {moved:?}");
        assert!(is_secret(&server.asked()[0]), "the origin itself was not given the token");
    }
    assert!(other.asked().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_slow_server_is_left_and_the_token_is_in_no_command_line() -> Result<()> {
    let certificates = Certificates::new()?;
    let server = Answers::start(&certificates, Arc::new(|_| None)).await?;
    let mut client =
        Client::new(&format!("https://localhost:{}/shop", server.port), token(), Some(certificates.ca.clone()))?;
    client.mirrors = client.mirrors.with_timeout(Duration::from_secs(4));
    let folder = client.folder.path().display().to_string();
    let processes = || -> Vec<(String, String)> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let read = |path: std::path::PathBuf| {
            fs::read(path).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default()
        };
        let both = all.map(|it| (read(it.path().join("cmdline")), read(it.path().join("environ"))));
        both.filter(|(_, environment)| environment.contains(&folder)).collect()
    };
    let seen = async {
        let asked = async || (!server.asked().is_empty()).then_some(());
        eventually(Duration::from_secs(30), "git asks", asked).await?;
        anyhow::Ok(processes())
    };
    let (slow, seen) = tokio::join!(client.main(), seen);
    let seen = seen?;
    assert!(matches!(slow, Err(GitError::TooSlow(4))), "{slow:?}");
    assert!(seen.iter().any(|(_, environment)| is_secret(environment)), "git was not there: {}", seen.len());
    assert!(seen.iter().all(|(command, _)| !is_secret(command)));
    let gone = async || processes().is_empty().then_some(());
    eventually(Duration::from_secs(10), "all processes are gone", gone).await?;
    assert!(client.folder.path().join("mirrors").read_dir()?.next().is_none(), "a private folder is left");
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_is_named_and_no_output_of_the_server_is_repeated() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let ca = || Some(web.certificates.ca.clone());
    let missing = Client::new(&web.url("token/none"), token(), ca())?.main().await;
    assert!(matches!(missing, Err(GitError::NotFound(_))), "{missing:?}");
    let forbidden = Client::new(&web.url("forbidden/shop"), token(), ca())?.main().await;
    assert!(matches!(forbidden, Err(GitError::Credential(_))), "{forbidden:?}");
    let mut client = Client::new(&web.url("token/shop"), token(), ca())?;
    let branch = client.fetch(Revision::Branch("none".to_owned()), None).await;
    assert_eq!(branch.unwrap_err().to_string(), "the repository has no branch none");
    let commit = client.fetch(Revision::Commit("0".repeat(40)), None).await;
    assert!(matches!(commit, Err(GitError::Ref(_))), "{commit:?}");
    let option = client.fetch(Revision::Branch("--upload-pack=id".to_owned()), None).await;
    assert!(matches!(option, Err(GitError::Revision(_))));
    for (path, good) in [
        ("config/none", false),
        ("config/prod/a.conf", true),
        ("config/*", false),
        (":/config", false),
        ("../x", false),
        ("/config", false),
    ] {
        client.path = path.to_owned();
        let fetched = client.main().await;
        assert_eq!(fetched.is_ok(), good, "{path}: {fetched:?}");
    }
    client.path = "config/prod/a.conf".to_owned();
    assert_eq!(text(&client.main().await?), [("a.conf", "one\n".to_owned())]);
    for wrong in ["", "a\nb", "a\r\nHost: evil"] {
        client.credential = Credential::Token { username: USER.to_owned(), token: Zeroizing::new(wrong.to_owned()) };
        assert!(matches!(client.main().await, Err(GitError::Token)));
    }
    drop(repository);

    // A server that repeats the request.
    let certificates = Certificates::new()?;
    for status in ["500 Oops", "400 Bad", "200 OK", "401 Unauthorized", "403 Forbidden"] {
        let echo = Answers::start(
            &certificates,
            Arc::new(move |request| Some(answer(status, "content-type: text/plain\r\n", request))),
        )
        .await?;
        let client =
            Client::new(&format!("https://localhost:{}/shop", echo.port), token(), Some(certificates.ca.clone()))?;
        let error = anyhow::Error::new(client.main().await.unwrap_err());
        assert!(is_secret(&echo.asked()[0]) && !is_secret(&format!("{error:#} {error:?}")), "{error:#}");
    }
    Ok(())
}

#[tokio::test]
async fn links_submodules_and_names_that_lead_out_are_refused_where_they_are_of_use() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    std::os::unix::fs::symlink("/etc/passwd", repository.work().join("config/prod/link"))?;
    let id = repository.commit("link")?;
    assert!(matches!(client.main().await, Err(GitError::Symlink(path)) if path == "link"));
    let without = |path: &str| path == "a.conf";
    assert!(matches!(client.fetch_if(Revision::Head, None, &without).await?, Some(it) if it.files.len() == 1));
    repository.git(&["rm", "-q", "config/prod/link"])?;
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{id},config/prod/sub")])?;
    fs::create_dir_all(repository.work().join("config/prod/sub"))?;
    repository.git(&["commit", "-q", "-m", "sub"])?;
    repository.publish()?;
    assert!(matches!(client.main().await, Err(GitError::Submodule(path)) if path == "sub"));
    assert!(client.fetch_if(Revision::Head, None, &without).await?.is_some());

    let blob = repository.git(&["rev-parse", "HEAD:config/prod/a.conf"])?;
    for name in ["..", ".git", "."] {
        let tree = |line: &str| -> Result<String> {
            let file = web.root().join("tree");
            fs::write(&file, line)?;
            repository.git(&["-c", "alias.tree=!git mktree --missing <\"$1\" #", "tree", &file.display().to_string()])
        };
        let inner = tree(&format!("100644 blob {blob}\tevil\n"))?;
        let outer = tree(&format!("040000 tree {inner}\t{name}\n"))?;
        let prod = tree(&format!("040000 tree {outer}\tprod\n"))?;
        let root = tree(&format!("040000 tree {prod}\tconfig\n"))?;
        let commit = repository.git(&["commit-tree", "-m", "evil", &root])?;
        repository.git(&["update-ref", "refs/heads/main", &commit])?;
        repository.publish()?;
        let refused = client.main().await;
        assert!(matches!(refused, Err(GitError::Fsck)), "{name}: {refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_force_push_is_a_change_like_any_other_and_a_lost_ref_is_named() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    let first = client.main().await?;
    repository.git(&["checkout", "-q", "--orphan", "other"])?;
    repository.write("config/prod/a.conf", "two\n")?;
    repository.git(&["add", "-A"])?;
    repository.git(&["commit", "-q", "-m", "other"])?;
    repository.git(&["branch", "-q", "-f", "main"])?;
    repository.publish()?;
    let Some(second) = client.fetch(Revision::Branch("main".to_owned()), Some(&first.id)).await? else {
        panic!("unchanged")
    };
    assert_eq!(text(&second), [("a.conf", "two\n".to_owned())]);
    repository.git(&["branch", "-q", "-D", "main"])?;
    repository.publish()?;
    let lost = client.fetch(Revision::Branch("main".to_owned()), Some(&second.id)).await;
    assert!(matches!(lost, Err(GitError::Ref(_))), "{lost:?}");
    Ok(())
}

#[tokio::test]
async fn tags_versions_and_commits_are_found() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let mut ids = Vec::new();
    for tag in ["v1.2.0", "v1.10.0", "v2.0.0-rc.1"] {
        repository.write("config/prod/a.conf", tag)?;
        ids.push(repository.commit(tag)?);
        repository.git(&["tag", "-a", "-m", tag, tag])?;
        repository.publish()?;
    }
    let client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    for (revision, expected) in [
        (Revision::Tag("v1.2.0".to_owned()), 0),
        (Revision::Semver("1".to_owned()), 1),
        (Revision::Commit(ids[0].clone()), 0),
        (Revision::Head, 2),
    ] {
        let Some(commit) = client.fetch(revision.clone(), None).await? else { panic!("unchanged") };
        assert_eq!(commit.id, ids[expected], "{revision}");
        assert!(client.fetch(revision, Some(&ids[expected])).await?.is_none());
    }
    let none = client.fetch(Revision::Semver(">=2".to_owned()), None).await.unwrap_err();
    assert_eq!(none.to_string(), "the repository has no tag with a version in >=2");
    Ok(())
}

#[tokio::test]
async fn servers_without_filters_or_objects_by_id_serve_as_well() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    for (name, filter) in [("none", "false"), ("filter", "true")] {
        let repository = Repository::new(web.root(), name)?;
        crate::repository::git(repository.served(), &["config", "uploadpack.allowFilter", filter])?;
        repository.git(&["tag", "-a", "-m", "1", "v1"])?;
        repository.publish()?;
        let client =
            Client::new(&web.url(&format!("old/{name}")), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
        let first = client.main().await.context(name)?;
        repository.write("config/prod/b.conf", "two\n")?;
        let id = repository.commit("second")?;
        let Some(second) = client.fetch(Revision::Head, Some(&first.id)).await? else { panic!("unchanged") };
        assert_eq!((second.id.as_str(), second.files.len()), (id.as_str(), 2), "{name}");
        let Some(tag) = client.fetch(Revision::Tag("v1".to_owned()), None).await? else { panic!("unchanged") };
        assert_eq!((tag.id, tag.files.len()), (first.id, 1));
    }
    Ok(())
}

#[tokio::test]
async fn a_broken_mirror_is_made_anew() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    let first = client.main().await?;
    let folder = client.folder.path().join("mirrors").read_dir()?.flatten().next().context("no mirror")?.path();
    let packs = || -> Vec<_> {
        folder.join("objects/pack").read_dir().into_iter().flatten().flatten().map(|it| it.path()).collect()
    };
    let each =
        |change: &dyn Fn(&std::path::Path) -> std::io::Result<()>| packs().iter().try_for_each(|path| change(path));
    let breaks: [(&str, &dyn Fn() -> std::io::Result<()>); 10] = [
        ("no packs", &|| each(&|path| fs::remove_file(path))),
        ("cut packs", &|| {
            each(&|path| {
                fs::remove_file(path)?;
                fs::write(path, "PACK")
            })
        }),
        ("a lock", &|| fs::write(folder.join("shallow.lock"), "")),
        ("a remainder", &|| fs::write(folder.join("objects/pack/tmp_pack_x"), "PACK")),
        ("no HEAD", &|| fs::remove_file(folder.join("HEAD"))),
        ("another form", &|| fs::write(folder.join("nudge-form"), "0\n")),
        ("half made", &|| fs::remove_dir_all(folder.join("objects"))),
        ("a file", &|| {
            fs::remove_dir_all(&folder)?;
            fs::write(&folder, "")
        }),
        ("a broken ref", &|| fs::write(folder.join(format!("refs/nudge/{}", first.id)), "garbage")),
        ("settings that run programs", &|| {
            fs::write(
                folder.join("config"),
                "[core]\n\tsshCommand = false\n[remote \"origin\"]\n\turl = /nowhere\n\tuploadpack = touch /tmp/x\n",
            )
        }),
    ];
    for (number, (what, break_it)) in breaks.into_iter().enumerate() {
        break_it()?;
        assert_eq!(client.main().await.context(what)?.files, first.files, "{what}");
        // With a change to fetch as well.
        break_it()?;
        repository.write("config/prod/b.conf", number.to_string())?;
        repository.commit(what)?;
        assert_eq!(
            client.main().await.context(what)?.files["b.conf"].as_slice(),
            number.to_string().as_bytes(),
            "{what}"
        );
        repository.git(&["reset", "-q", "--hard", &first.id])?;
        repository.publish()?;
    }
    Ok(())
}
