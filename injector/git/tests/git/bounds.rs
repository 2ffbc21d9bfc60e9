//! How much a repository may cost, and who shares it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use nudge_git::{Credential, GitError, Mirrors};

use crate::answers::{Answers, answer};
use crate::repository::{Client, Repository};
use crate::web::{Certificates, Web};

/// Bytes that no program makes smaller.
pub(crate) fn noise(bytes: usize) -> Result<Vec<u8>> {
    let mut noise = vec![0; bytes];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut noise)
        .map_err(|_| anyhow::anyhow!("no randomness"))?;
    Ok(noise)
}

/// Files below a path: of one content, so that this takes a moment.
fn many(repository: &Repository, files: usize) -> Result<()> {
    let mut text =
        b"blob\nmark :1\ndata 1\nx\ncommit refs/heads/main\ncommitter A <a@example.com> 1 +0000\ndata 1\nm\n".to_vec();
    for number in 0..files {
        writeln!(text, "M 100644 :1 config/prod/{}/{number}", number / 1000)?;
    }
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet", "--force"])
        .current_dir(repository.served())
        .stdin(Stdio::piped())
        .spawn()?;
    import.stdin.take().context("no stdin")?.write_all(&text)?;
    ensure!(import.wait()?.success(), "no import");
    Ok(())
}

#[tokio::test]
async fn files_and_bytes_are_bounded() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "shop")?;
    let mut client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    many(&repository, 100_000)?;
    let too_many = client.main().await;
    assert!(matches!(too_many, Err(GitError::TooManyFiles(_))), "{too_many:?}");
    client.path = "config/prod/7".to_owned();
    assert_eq!(client.main().await?.files.len(), 1000);

    client.path = String::new();
    repository.write("large", vec![b'x'; 4 * 1024 * 1024])?;
    repository.commit("large")?;
    assert!(matches!(client.main().await, Err(GitError::TooLarge(_))));
    // One content, many times.
    fs::remove_file(repository.work().join("large"))?;
    for number in 0..5 {
        repository.write(&number.to_string(), vec![b'x'; 1024 * 1024])?;
    }
    repository.commit("alike")?;
    assert!(matches!(client.main().await, Err(GitError::TooLarge(_))));
    let some = client.fetch_if(nudge_git::Revision::Head, None, &|path| path == "1").await?;
    assert!(matches!(some, Some(it) if it.files.len() == 1));

    repository.write("noise", noise(3 * 1024 * 1024)?)?;
    repository.commit("noise")?;
    client.mirrors = Mirrors::new(client.folder.path().join("small"), 1024 * 1024);
    let too_large = client.main().await;
    assert!(matches!(too_large, Err(GitError::TooLargeMirror(_))), "{too_large:?}");
    assert!(client.mirrors.bytes() < 1024 * 1024);
    // Objects that are not needed are not fetched.
    client.path = "config".to_owned();
    client.main().await?;
    Ok(())
}

#[tokio::test]
async fn a_mirror_is_shared_and_the_least_recently_used_goes_first() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    for name in ["a", "b", "c"] {
        let repository = Repository::new(web.root(), name)?;
        repository.write("config/prod/noise", noise(400 * 1024)?)?;
        repository.commit("noise")?;
    }
    let at = |name: &str| {
        Client::new(&web.url(&format!("open/{name}")), Credential::Anonymous, Some(web.certificates.ca.clone()))
    };
    let mut client = at("a")?;
    let twenty: Vec<_> = try_join_all((0..20).map(|_| client.main())).await?;
    assert!(twenty.iter().all(|commit| commit.files == twenty[0].files));
    let folder = client.folder.path().join("mirrors");
    let mirrors = || folder.read_dir().map(|it| it.flatten().map(|it| it.file_name()).collect::<Vec<_>>());
    assert_eq!(mirrors()?.len(), 1);
    let packs = web.log()?.lines().filter(|line| line.starts_with("POST") && !line.contains(" 200 0 ")).count();
    // Twenty lists of refs; the commit and the contents once.
    assert!(packs <= 20 + 4, "{packs} requests");
    let first = mirrors()?.pop().context("no mirror")?;
    // The remains of another version.
    fs::create_dir_all(folder.join("0-old"))?;
    fs::write(folder.join("0-old/file"), noise(400 * 1024)?)?;

    client.mirrors = Mirrors::new(folder.clone(), 1_300_000);
    client.url = at("b")?.url;
    client.main().await?;
    let names = mirrors()?;
    assert!(names.contains(&first) && names.len() == 2, "{names:?}");
    client.url = at("c")?.url;
    client.main().await?;
    assert!(client.mirrors.bytes() <= 1_300_000);
    client.url = at("a")?.url;
    client.main().await?;
    assert!(client.mirrors.bytes() <= 1_300_000);
    Ok(())
}

/// Returns a command's output for this input.
fn piped(mut command: Command, input: &[u8]) -> Result<Vec<u8>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{command:?} failed");
        Ok(output.stdout)
    })
}

#[tokio::test]
async fn what_is_small_on_the_wire_and_large_in_memory_is_refused() -> Result<()> {
    const LARGE: usize = 300 * 1024 * 1024;
    let Some(web) = Web::start().await? else { return Ok(()) };
    // One commit, whose message is nothing but spaces.
    let repository = Repository::new(web.root(), "shop")?;
    let tree = repository.git(&["rev-parse", "HEAD^{tree}"])?;
    let mut commit = format!("tree {tree}\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\n").into_bytes();
    commit.resize(LARGE, b' ');
    let mut hash = Command::new("git");
    hash.args(["hash-object", "-w", "-t", "commit", "--stdin"]).current_dir(repository.served());
    let id = String::from_utf8(piped(hash, &commit)?)?;
    crate::repository::git(repository.served(), &["update-ref", "refs/heads/main", id.trim()])?;
    // The server sends existing packs. Packing on request might take longer than the server may be silent, if other
    // processes use the processor.
    crate::repository::git(repository.served(), &["repack", "-a", "-d", "-q"])?;
    let client = Client::new(&web.url("open/shop"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    let large = client.main().await;
    assert!(matches!(large, Err(GitError::Memory(_))), "{large:?}");

    // A list of refs that is compressed.
    let list = Arc::new(piped(Command::new("gzip"), &vec![0; LARGE])?);
    ensure!(list.len() < LARGE / 100, "it is small");
    let certificates = Certificates::new()?;
    let head = "content-type: application/x-git-upload-pack-advertisement\r\ncontent-encoding: gzip\r\n";
    let server =
        Answers::start(&certificates, Arc::new(move |_| Some(answer("200 OK", head, list.as_slice())))).await?;
    let url = format!("https://localhost:{}/shop", server.port);
    let large = Client::new(&url, Credential::Anonymous, Some(certificates.ca.clone()))?.main().await;
    assert!(matches!(large, Err(GitError::Memory(_))), "{large:?}");
    Ok(())
}
