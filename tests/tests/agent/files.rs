//! `--mount-path`: the values as files that change all at once, and stay whole whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nudge_protocol::status::{Outcome, Status};
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, ConfigDir, ExecCommand, binary, procfs, tools};

/// The application of these tests.
const APP: &str = env!("CARGO_BIN_EXE_app");

/// Runs `child` under an agent that writes its files into a folder next to the configuration, and returns that folder.
async fn start<S: AsRef<OsStr>>(dir: ConfigDir, arguments: &[&str], child: &[S]) -> Result<(AgentUnderTest, PathBuf)> {
    let files = dir.beside("files");
    let mounted = [OsStr::new("--mount-path"), files.as_ref()];
    let agent = AgentUnderTest::start_with(dir, |exec| exec.args(mounted).args(arguments), child).await?;
    Ok((agent, files))
}

/// Returns the names in a folder, sorted.
fn names(folder: &Path) -> Result<BTreeSet<String>> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry?.file_name().into_string().map_err(|_| anyhow!("odd name"));
    fs::read_dir(folder)?.map(name).collect()
}

/// Returns the names that are keys.
fn keys(folder: &Path) -> Result<BTreeSet<String>> {
    Ok(names(folder)?.into_iter().filter(|name| !name.starts_with("..")).collect())
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// Returns whether the files hold the dictionary that is served.
fn are_files_written(status: &Status) -> bool {
    status.files.as_ref().is_some_and(|files| files.message.is_none() && files.etag.as_ref() == Some(&status.etag))
}

/// Returns the reason why the files are not written.
fn reason(status: &Status) -> Option<&str> {
    status.files.as_ref()?.message.as_deref()
}

#[tokio::test]
async fn every_key_is_a_file_with_its_bytes_before_the_child_starts() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_version("shop", "1", [("text", &b"it's\n"[..]), ("binary", b"\xff\x00"), ("empty", b"")])?;
    dir.switch("shop", "1")?;
    let files = dir.beside("files");
    let script = r#"cat "$0/text" && exec sleep infinity"#;
    let (mut agent, files) = start(dir, &[], &["sh", "-c", script, files.to_str().context("odd path")?]).await?;
    agent.wait_for_lines(1, "it's").await?;
    assert_eq!(fs::read(files.join("binary"))?, b"\xff\x00");
    assert_eq!(fs::read(files.join("empty"))?, b"");
    assert_eq!(fs::read(files.join("nudge.configs"))?, b"shop=1");
    assert_eq!(keys(&files)?, set(["binary", "empty", "nudge.config.shop.version", "nudge.configs", "text"]));
    let status = agent.client.status().await?;
    assert!(are_files_written(&status), "{status:?}");
    assert_eq!(status.files.map(|status| status.path), files.to_str().map(str::to_owned));
    Ok(())
}

#[tokio::test]
async fn removed_keys_vanish_and_new_ones_appear() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", [("greeting", "hello")])?;
    let (mut agent, files) = start(dir, &[], &IDLE).await?;
    fs::write(files.join("mine"), "untouched")?;
    for (version, key, other) in [("2.0.0", "greeting", "lives"), ("1.0.0", "lives", "greeting")] {
        agent.dir.switch("shop", version)?;
        agent
            .status_when("the files are written", |status| {
                are_files_written(status) && status.configs[0].version.as_str() == version
            })
            .await?;
        assert_eq!(keys(&files)?, set(["mine", key, "nudge.config.shop.version", "nudge.configs"]));
        assert!(fs::symlink_metadata(files.join(other)).is_err());
        assert_eq!(fs::read_to_string(files.join("nudge.configs"))?, format!("shop={version}"));
    }
    assert_eq!(fs::read_to_string(files.join("mine"))?, "untouched");
    Ok(())
}

#[tokio::test]
async fn a_reader_never_sees_two_versions_mixed() -> Result<()> {
    let dir = ConfigDir::new()?;
    for (version, own) in [("a", "only-a"), ("b", "only-b")] {
        dir.write_version("shop", version, ["one", "two", "three", own].map(|key| (key, version.repeat(1000))))?;
    }
    dir.switch("shop", "a")?;
    let (mut agent, files) = start(dir, &[], &IDLE).await?;

    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // Ends by itself, with an error, when the folder is gone.
    let reader = std::thread::spawn(move || -> Result<BTreeMap<String, usize>> {
        let mut seen_values = BTreeMap::new();
        while !stopped.load(Ordering::Relaxed) {
            if let Some(version) = look(&files)? {
                *seen_values.entry(version).or_default() += 1;
            }
        }
        Ok(seen_values)
    });
    for round in 0..100 {
        let version = ["b", "a"][round % 2];
        agent.dir.switch("shop", version)?;
        agent.wait_until_served(&format!("shop={version}")).await?;
    }
    stop.store(true, Ordering::Relaxed);
    let seen = reader.join().map_err(|_| anyhow!("the reader panicked"))??;
    assert!(seen.keys().eq(["a", "b"]), "{seen:?}");
    Ok(())
}

/// Reads all files of the version that is visible now, resolved once, and gives its name; `None` if it was swapped away
/// meanwhile.
fn look(files: &Path) -> Result<Option<String>> {
    let data = files.join("..data");
    let visible = fs::read_link(&data)?;
    let read = |key: &str| fs::read_to_string(files.join(&visible).join(key));
    let found = names(&files.join(&visible)).and_then(|names| {
        let values = ["one", "two", "three"].map(read).into_iter().collect::<Result<BTreeSet<_>, _>>()?;
        Ok((names, values))
    });
    // Old files are removed after the swap, so only what was read before it counts.
    if fs::read_link(&data)? != visible {
        return Ok(None);
    }
    let (names, values) = found?;
    let version = values.first().and_then(|value| value.get(..1)).unwrap_or_default().to_owned();
    ensure!(values == BTreeSet::from([version.repeat(1000)]), "mixed values: {values:?}");
    let description = format!("only-{version}");
    ensure!(
        names == set(["nudge.config.shop.version", "nudge.configs", &description, "one", "three", "two"]),
        "{names:?}"
    );
    Ok(Some(version))
}

#[tokio::test]
async fn the_files_are_in_place_when_the_signal_comes() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let lives = dir.beside("files").join("lives");
    let child = [APP, "--catch", "SIGHUP", "--read", lives.to_str().context("odd path")?];
    let (mut agent, _) = start(dir, &["--notify", "SIGHUP"], &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    for round in 1..=50 {
        let (version, lives) = [("1.0.0", "3"), ("1.0.1", "5")][round % 2];
        agent.dir.switch("shop", version)?;
        let output = agent.output_when("a line for every switch", |output| output.lines().count() > round).await?;
        let line = output.lines().next_back().unwrap_or_default();
        ensure!(line.ends_with(&format!("SIGHUP {lives}")), "round {round}: {line}");
    }
    Ok(())
}

#[tokio::test]
async fn a_users_file_in_the_way_stays_and_holds_up_only_the_files() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", [("lives", "9"), ("mine", "nudge's")])?;
    let child = [APP, "--catch", "SIGUSR1", "--fetch"];
    let (mut agent, files) = start(dir, &["--notify", "SIGUSR1"], &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    let mine = files.join("mine");
    fs::write(&mine, "the user's")?;
    agent.dir.switch("shop", "2.0.0")?;
    agent.wait_until_served("shop=2.0.0").await?;
    let status = agent.status_when("the files are not written", |status| reason(status).is_some()).await?;
    assert!(reason(&status).is_some_and(|reason| reason.contains("mine is in the way")), "{status:?}");
    assert_eq!(status.containers[0].notified.outcome, Outcome::NothingYet, "notified before the files are in place");
    assert_eq!(fs::read_to_string(&mine)?, "the user's");
    assert_eq!(fs::read_to_string(files.join("lives"))?, "3");
    agent.logs("files not written").await?;

    fs::remove_file(&mine)?;
    agent.wait_for_lines(1, "SIGUSR1 shop=2.0.0").await?;
    assert_eq!(fs::read_to_string(&mine)?, "nudge's");
    assert_eq!(fs::read_to_string(files.join("lives"))?, "9");
    assert!(are_files_written(&agent.client.status().await?));
    Ok(())
}

#[tokio::test]
async fn a_users_file_in_the_way_at_the_start_is_a_reason_not_to_start() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let files = dir.beside("files");
    fs::create_dir(&files)?;
    fs::write(files.join("lives"), "the user's")?;
    let mounted = [OsStr::new("--mount-path"), files.as_ref()];
    let mut agent = ExecCommand::new(binary::debug()?, dir.path()).args(mounted).spawn(&IDLE)?;
    let status = agent.process().wait_for_exit(WAIT_TIMEOUT).await?;
    assert_eq!(status.code(), Some(125), "{}", agent.log());
    assert!(agent.log().contains("lives is in the way and was not made by Nudge"), "{}", agent.log());
    assert_eq!(names(&files)?, set(["lives"]));
    assert_eq!(fs::read_to_string(files.join("lives"))?, "the user's");
    Ok(())
}

#[tokio::test]
async fn an_agent_takes_over_the_folder_of_one_that_was_killed() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", [("greeting", "hello")])?;
    let (mut agent, files) = start(dir, &[], &IDLE).await?;
    let pid = Pid::from_raw(agent.agent.pid());
    let children = procfs::descendants(pid.as_raw())?;
    // The agent first: it would end in good order with its child.
    kill(pid, Signal::SIGKILL)?;
    for child in children {
        // The agent's end may have ended it already.
        match kill(Pid::from_raw(child), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    agent.agent.process().wait_for_exit(WAIT_TIMEOUT).await?;

    agent.dir.switch("shop", "2.0.0")?;
    let mounted = [OsStr::new("--mount-path"), files.as_ref()];
    let (_agent, _) = ExecCommand::new(binary::debug()?, agent.dir.path()).args(mounted).start(&IDLE).await?;
    assert_eq!(keys(&files)?, set(["greeting", "nudge.config.shop.version", "nudge.configs"]));
    let versions = names(&files)?.into_iter().filter(|name| name.starts_with("..2"));
    assert_eq!(versions.count(), 1, "{:?}", names(&files)?);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// A full disk

/// Returns a command that becomes another in a mount namespace of its own, with a small file system at `place`. `None`
/// if no such can be had.
fn with_small_disk(place: &Path) -> Result<Option<Vec<String>>> {
    let script = r#"mount -t tmpfs -o size=128k,mode=755 tmpfs "$0" && exec "$@""#;
    let place = place.to_str().context("odd path")?;
    for unshare in [&["unshare", "--user", "--map-root-user", "--mount"][..], &["unshare", "--mount"]] {
        let wrapper: Vec<&str> = unshare.iter().copied().chain(["sh", "-c", script, place]).collect();
        let probe = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").stderr(Stdio::null()).status();
        if probe.is_ok_and(|status| status.success()) {
            return Ok(Some(wrapper.into_iter().map(str::to_owned).collect()));
        }
    }
    tools::skipped("no mount namespace in which a disk could be full");
    Ok(None)
}

#[tokio::test]
async fn on_a_full_disk_the_old_files_stay_whole_until_there_is_room() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2.0.0", [("lives", "x".repeat(20_000)), ("greeting", "hello".to_owned())])?;
    let disk = dir.beside("disk");
    fs::create_dir(&disk)?;
    let Some(small_disk) = with_small_disk(&disk)? else { return Ok(()) };
    let mounted =
        [OsStr::new("--mount-path").to_owned(), disk.join("files").into(), "--notify".into(), "SIGUSR1".into()];
    let child = [APP, "--catch", "SIGUSR1", "--fetch"];
    let mut agent = AgentUnderTest::start_with(dir, |exec| exec.under(small_disk).args(mounted), &child).await?;
    let output = agent.wait_for_lines(1, "ready").await?;
    let pid = output.split_whitespace().next().context("no process id")?;
    // The disk as the child sees it.
    let disk = Path::new("/proc").join(pid).join("root").join(disk.strip_prefix("/")?);
    let files = disk.join("files");
    let before = (names(&files)?, fs::read_link(files.join("..data"))?);

    let filler = disk.join("filler");
    fill(&filler)?;
    let first = agent.client.status().await?;
    agent.dir.switch("shop", "2.0.0")?;
    let status = agent.status_when("the files are not written", |status| reason(status).is_some()).await?;
    assert!(reason(&status).is_some_and(|reason| reason.contains("No space left")), "{status:?}");
    assert_eq!(status.files.and_then(|files| files.etag), Some(first.etag));
    assert_eq!(status.configs[0].version.as_str(), "2.0.0", "the endpoint needs no room");
    assert_eq!(status.containers[0].notified.outcome, Outcome::NothingYet, "notified before the files are in place");
    assert_eq!((names(&files)?, fs::read_link(files.join("..data"))?), before);
    assert_eq!(fs::read_to_string(files.join("lives"))?, "3");

    fs::remove_file(&filler)?;
    agent.wait_for_lines(1, "SIGUSR1 shop=2.0.0").await?;
    assert_eq!(fs::read_to_string(files.join("lives"))?.len(), 20_000);
    assert_eq!(fs::read_to_string(files.join("greeting"))?, "hello");
    let status = agent.client.status().await?;
    assert!(are_files_written(&status), "{status:?}");
    Ok(())
}

/// Writes until there is no more room.
fn fill(file: &Path) -> Result<()> {
    let mut file = File::create(file)?;
    loop {
        match file.write(&[0; 1024]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
