//! What a large repository costs, beside a plain `git clone --depth 1`. By hand:
//! `cargo test --release -p nudge-git --test git -- --ignored --nocapture large`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use nudge_git::{Credential, Fetched, Revision};

use crate::bounds::noise;
use crate::repository::{Client, Repository};
use crate::web::Web;

/// Files, and the commits before the last with the bytes that only history has.
const FILES: usize = 20_000;
const COMMITS: usize = 500;
const BYTES: usize = 1024 * 1024;

/// The bytes that nginx has sent.
fn sent(web: &Web) -> Result<u64> {
    let log = web.log()?;
    let bytes = log.lines().filter_map(|line| line.split(" user=").next()?.rsplit(' ').next()?.parse::<u64>().ok());
    Ok(bytes.sum())
}

fn generate(repository: &Repository) -> Result<()> {
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet", "--force"])
        .current_dir(repository.served())
        .stdin(Stdio::piped())
        .spawn()?;
    let mut to = import.stdin.take().context("no stdin")?;
    for number in 0..COMMITS {
        write!(
            to,
            "commit refs/heads/main\ncommitter A <a@example.com> {number} +0000\ndata 1\nm\nM 100644 inline history\ndata {BYTES}\n"
        )?;
        to.write_all(&noise(BYTES)?)?;
        writeln!(to)?;
    }
    write!(to, "commit refs/heads/main\ncommitter A <a@example.com> {COMMITS} +0000\ndata 1\nm\nD history\n")?;
    for number in 0..FILES {
        let content = format!("file {number}\n{:?}\n", noise(100)?);
        let folder =
            if number < 40 { "config/prod".to_owned() } else { format!("src/{}/{}", number / 1000, number / 50) };
        write!(to, "M 100644 inline {folder}/{number}\ndata {}\n{content}\n", content.len())?;
    }
    drop(to);
    ensure!(import.wait()?.success(), "no import");
    Ok(())
}

#[tokio::test]
#[ignore = "a measurement by hand"]
async fn large_repositories_cost_what_is_of_use() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "large")?;
    generate(&repository)?;
    let client = Client::new(&web.url("open/large"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    let mut last = (sent(&web).unwrap_or_default(), Instant::now());
    let mut show = |what: &str, disk: u64| -> Result<Duration> {
        let now = (sent(&web)?, Instant::now());
        let took = now.1 - last.1;
        println!("{what}: {} ms, {} bytes on the wire, {disk} bytes on disk", took.as_millis(), now.0 - last.0);
        last = (sent(&web)?, Instant::now());
        Ok(took)
    };
    let to = client.folder.path().join("clone");
    fs::write(client.folder.path().join("ca"), &web.certificates.ca)?;
    let cloned = Command::new("git")
        .args(["clone", "-q", "--depth", "1", &web.url("open/large")])
        .arg(&to)
        .env("GIT_SSL_CAINFO", client.folder.path().join("ca"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .status()?;
    ensure!(cloned.success(), "no clone");
    let size = Command::new("du").args(["-s", "-B1"]).arg(&to).output()?.stdout;
    show("git clone --depth 1", String::from_utf8_lossy(&size).split_whitespace().next().unwrap_or_default().parse()?)?;

    let cold = client.main().await?;
    assert_eq!(cold.files.len(), 40);
    let cold_time = show("cold", client.mirrors.bytes())?;
    let unchanged = client.fetch(Revision::Head, Some(&cold.id)).await?;
    assert!(matches!(unchanged, Fetched::Unchanged));
    show("unchanged", client.mirrors.bytes())?;
    client.main().await?;
    show("warm, the same commit", client.mirrors.bytes())?;
    repository.git(&["fetch", "-q", "--depth", "1", &repository.served().display().to_string(), "main"])?;
    repository.git(&["reset", "-q", "--hard", "FETCH_HEAD"])?;
    repository.write("config/prod/0", "changed\n")?;
    repository.git(&["add", "-A"])?;
    repository.git(&["commit", "-q", "-m", "changed"])?;
    repository.git(&["push", "-q", &repository.served().display().to_string(), "HEAD:main"])?;
    show("(a commit)", client.mirrors.bytes())?;
    client.main().await?;
    show("warm, one file changed", client.mirrors.bytes())?;
    let fresh = Client::new(&web.url("open/large"), Credential::Anonymous, Some(web.certificates.ca.clone()))?;
    try_join_all((0..20).map(|_| fresh.main())).await?;
    show("twenty sources at once, cold", fresh.mirrors.bytes())?;
    ensure!(cold_time < Duration::from_secs(30), "cold took {cold_time:?}");
    Ok(())
}
