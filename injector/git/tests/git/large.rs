//! The cost of a large repository, compared with a plain `git clone --depth 1`: with files in git, with files in Git
//! LFS, and of one file. The long form: `NUDGE_GIT_FILES=20000 NUDGE_GIT_MIB=500 cargo test --release -p nudge-git
//! --test git -- --nocapture large`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use nudge_git::{Commit, Credential, Revision};

use crate::bounds::noise;
use crate::lfs::pointer;
use crate::repository::{Client, Repository};
use crate::web::Web;

/// The number of wanted files.
const WANTED_FILES: usize = 40;
/// The bytes of each commit that only history has.
const HISTORY_BYTES: usize = 1024 * 1024;
/// The maximum bytes that a check of a known commit costs.
const MAX_CHECK_BYTES: u64 = 2000;
/// The maximum bytes that the list of all files costs, for each of them.
const MAX_LIST_BYTES_PER_FILE: u64 = 40;
/// The minimum number of files of the test's long form.
const MIN_FILES_OF_LONG_TEST: usize = 20_000;

fn number(name: &str, otherwise: usize) -> Result<usize> {
    env::var(name).map_or(Ok(otherwise), |text| text.parse().with_context(|| format!("{name} is no number")))
}

/// The bytes that nginx has sent.
async fn sent(web: &Web) -> Result<u64> {
    let lines = web.answered().await?;
    let bytes = lines.iter().filter_map(|line| line.split(" user=").next()?.rsplit(' ').next()?.parse::<u64>().ok());
    Ok(bytes.sum())
}

/// Fills the branch `main`, and `lfs` with pointers in place of the files that are used. Returns the contents of these
/// files.
fn generate(repository: &Repository, files: usize, commits: usize) -> Result<Vec<Vec<u8>>> {
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet", "--force"])
        .current_dir(repository.served())
        .stdin(Stdio::piped())
        .spawn()?;
    let mut to = import.stdin.take().context("no stdin")?;
    let commit = |branch: &str, time: usize| {
        format!("commit refs/heads/{branch}\ncommitter A <a@example.com> {time} +0000\ndata 1\nm\n")
    };
    for number in 0..commits {
        write!(to, "{}M 100644 inline history\ndata {HISTORY_BYTES}\n", commit("main", number))?;
        to.write_all(&noise(HISTORY_BYTES)?)?;
        writeln!(to)?;
    }
    write!(to, "{}", commit("main", commits))?;
    if commits > 0 {
        writeln!(to, "D history")?;
    }
    let mut used = Vec::new();
    for number in 0..files {
        let content = format!("file {number}\n{:?}\n", noise(100)?);
        let folder = if number < WANTED_FILES {
            "config/prod".to_owned()
        } else {
            format!("src/{}/{}", number / 1000, number / 50)
        };
        write!(to, "M 100644 inline {folder}/{number}\ndata {}\n{content}\n", content.len())?;
        if number < WANTED_FILES {
            used.push(content.into_bytes());
        }
    }
    writeln!(to, "{}from refs/heads/main", commit("lfs", commits))?;
    for (number, content) in used.iter().enumerate() {
        let (text, _) = pointer(content);
        write!(to, "M 100644 inline config/prod/{number}\ndata {}\n{text}\n", text.len())?;
    }
    drop(to);
    ensure!(import.wait()?.success(), "no import");
    Ok(used)
}

/// A first fetch.
struct First {
    time: Duration,
    received: u64,
    commit: Commit,
}

/// The cost of each step.
struct Measure<'a> {
    web: &'a Web,
    last: (u64, Instant),
}

impl Measure<'_> {
    /// Prints the traffic since the last step, and returns the step's time and the bytes that were received.
    #[allow(clippy::print_stdout)] // for a person who runs the test alone
    async fn show(&mut self, what: &str, disk: u64) -> Result<(Duration, u64)> {
        let took = self.last.1.elapsed();
        let received = sent(self.web).await? - self.last.0;
        println!("{what}: {} ms, {received} bytes on the wire, {disk} bytes on disk", took.as_millis());
        self.skip().await?;
        Ok((took, received))
    }

    /// Resets the measurement.
    async fn skip(&mut self) -> Result<()> {
        self.last = (sent(self.web).await?, Instant::now());
        Ok(())
    }

    /// Fetches a branch three times: for the first time, which takes so many bytes at most, when it is known, and with
    /// the mirror alone.
    async fn fetches(&mut self, what: &str, client: &Client, branch: &str, most: u64) -> Result<First> {
        let branch = Revision::Branch(branch.to_owned());
        let fetch = async |known: Option<&str>| client.fetch(branch.clone(), known).await;
        self.skip().await?;
        let Some(cold) = fetch(None).await? else { anyhow::bail!("{what}: unchanged") };
        let disk = client.mirrors.bytes();
        let (time, received) = self.show(&format!("{what}, cold"), disk).await?;
        assert!(received <= most, "{what}: {received} bytes, more than {most}");
        assert!(disk <= most + 512 * 1024, "{what}: {disk} bytes on disk");
        assert!(fetch(Some(&cold.id)).await?.is_none());
        let (_, unchanged) = self.show(&format!("{what}, unchanged"), client.mirrors.bytes()).await?;
        let Some(warm) = fetch(None).await? else { anyhow::bail!("{what}: unchanged") };
        let (_, same) = self.show(&format!("{what}, warm"), client.mirrors.bytes()).await?;
        assert!(unchanged < MAX_CHECK_BYTES && same < MAX_CHECK_BYTES, "{what}: {unchanged} and {same} bytes");
        assert_eq!((&warm.id, &warm.files), (&cold.id, &cold.files));
        Ok(First { time, received, commit: cold })
    }
}

#[tokio::test]
async fn large_repositories_cost_what_is_of_use() -> Result<()> {
    let (files, commits) = (number("NUDGE_GIT_FILES", 2000)?, number("NUDGE_GIT_MIB", 20)?);
    let giftless = crate::giftless::start().await?;
    let location = giftless.as_ref().map(|it| it.location("open", "")).unwrap_or_default();
    let Some(web) = Web::start_first(&location).await? else { return Ok(()) };
    let repository = Repository::new(web.root(), "large")?;
    let contents = generate(&repository, files, commits)?;
    let content: u64 = contents.iter().map(|it| it.len() as u64).sum();
    let (url, ca) = (web.url("open/large"), &web.certificates.ca);
    let client = || Client::new(&url, Credential::Anonymous, Some(ca.clone()));
    let mut measure = Measure { web: &web, last: (0, Instant::now()) };
    println!("{files} files, {commits} MiB of history, {content} bytes in the {WANTED_FILES} files that are of use");

    let scratch = tempfile::tempdir()?;
    let to = scratch.path().join("clone");
    fs::write(scratch.path().join("ca"), ca)?;
    measure.skip().await?;
    let cloned = Command::new("git")
        .args(["clone", "-q", "--depth", "1", &url])
        .arg(&to)
        .env("GIT_SSL_CAINFO", scratch.path().join("ca"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .status()?;
    ensure!(cloned.success(), "no clone");
    let size = Command::new("du").args(["-s", "-B1"]).arg(&to).output()?.stdout;
    let size = String::from_utf8_lossy(&size).split_whitespace().next().unwrap_or_default().parse()?;
    measure.show("git clone --depth 1", size).await?;

    // The names and ids of all files, and the contents of those that are of use.
    let listed = MAX_LIST_BYTES_PER_FILE * files as u64 + MAX_CHECK_BYTES;
    let one = client()?;
    let folder = measure.fetches("a folder", &one, "main", listed + content).await?;
    assert!(contents_of(folder.commit) == contents, "other contents");
    ensure!(files < MIN_FILES_OF_LONG_TEST || folder.time < Duration::from_secs(30), "cold took {:?}", folder.time);
    change(&repository)?;
    measure.skip().await?;
    one.main().await?;
    let (_, changed) = measure.show("a folder, one file changed", one.mirrors.bytes()).await?;
    assert!(changed < content, "{changed} bytes for one file");

    let fresh = client()?;
    measure.skip().await?;
    try_join_all((0..20).map(|_| fresh.main())).await?;
    let (_, twenty) = measure.show("twenty sources at once, cold", fresh.mirrors.bytes()).await?;
    assert!(twenty <= listed + content + 20 * MAX_CHECK_BYTES, "{twenty} bytes for twenty");
    assert_eq!(fresh.folder.path().join("mirrors").read_dir()?.count(), 1, "mirrors");

    let mut single = client()?;
    single.path = "config/prod/7".to_owned();
    // Most of the folder, even packed, is not fetched.
    let file = measure.fetches("one file", &single, "main", folder.received - content / 4).await?;
    assert_eq!(contents_of(file.commit), contents[7..8]);

    let Some(giftless) = giftless else { return Ok(()) };
    crate::giftless::upload(&web, &giftless, "open/large", &contents).await?;
    let mut lfs = client()?;
    lfs.credential = crate::giftless::credential(giftless.token("open/large", "read", 3600)?);
    lfs.lfs = true;
    // The contents once more, because these are not packed; the pointers, and the place of each object.
    let most = folder.received + content + 1000 * WANTED_FILES as u64;
    let kept = measure.fetches("a folder in LFS", &lfs, "lfs", most).await?;
    assert!(contents_of(kept.commit) == contents, "other contents");
    Ok(())
}

/// Returns the contents of the commit, in the order of their names, which are numbers.
fn contents_of(commit: Commit) -> Vec<Vec<u8>> {
    let numbered: BTreeMap<usize, _> =
        commit.files.into_iter().filter_map(|(name, content)| Some((name.parse().ok()?, content.to_vec()))).collect();
    numbered.into_values().collect()
}

/// Changes one of the files that are of use.
fn change(repository: &Repository) -> Result<()> {
    let served = repository.served().display().to_string();
    repository.git(&["fetch", "-q", "--depth", "1", &served, "main"])?;
    repository.git(&["reset", "-q", "--hard", "FETCH_HEAD"])?;
    repository.write("config/prod/0", "changed\n")?;
    repository.git(&["add", "-A"])?;
    repository.git(&["commit", "-q", "-m", "changed"])?;
    repository.git(&["push", "-q", &served, "HEAD:main"]).map(drop)
}
