//! Files that can't be written: the version is not taken, the pod reports that, and the old files stay whole.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nudge_protocol::VersionName;
use nudge_protocol::hub::ReportRequest;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{FakeHub, Finished, Pod, tools};

use crate::hub_source::{APP, CATCHES, USR1};

/// A small file system in memory, as the volume for files is.
struct Disk(PathBuf);

impl Disk {
    /// Returns `None`, with the reason printed, if none can be had.
    fn at(place: PathBuf, options: &str) -> Result<Option<Self>> {
        fs::create_dir(&place)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&place).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Ok(Some(Self(place)));
        }
        tools::skipped("only root can mount a small file system");
        Ok(None)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The test has failed already if it is in use.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Makes a version of `count` keys, all with the same small value, current.
fn activate(hub: &FakeHub, version: &str, count: usize) -> Result<()> {
    let keys: Vec<String> = (0..count).map(|number| format!("key-{number}")).collect();
    let values: Vec<(&str, &[u8])> = keys.iter().map(|key| (key.as_str(), version.as_bytes())).collect();
    hub.activate("shop", version, &values)
}

/// Returns the version that is served, and whether all is taken.
fn state(report: &ReportRequest) -> (Option<&str>, bool, bool) {
    let config = &report.configs[0];
    (config.version.as_ref().map(VersionName::as_str), report.acknowledged, config.problem.is_some())
}

/// Returns whether the pod reports that it can't apply the version, with this cause.
fn cant_apply(report: &ReportRequest, cause: &str) -> bool {
    let problem = report.configs[0].problem.as_ref();
    problem.is_some_and(|problem| problem.reason == "CantApply" && problem.message.contains(cause))
}

/// Whether these are the files of a version of `count` keys, and nothing else.
fn assert_files(folder: &Path, version: &str, count: usize) -> Result<()> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    let keys = names.iter().filter(|name| name.to_string_lossy().starts_with("key-"));
    ensure!(keys.count() == count, "{} names, not those of {count} keys", names.len());
    for number in 0..count {
        let value = fs::read_to_string(folder.join(format!("key-{number}")))?;
        ensure!(value == version, "key-{number} is of {value}, not of {version}");
    }
    let folders = names.iter().filter(|name| name.to_string_lossy().starts_with("..2"));
    ensure!(folders.count() == 1, "a folder is left over: {names:?}");
    Ok(())
}

fn check_readiness(pod: &Pod) -> Result<Finished> {
    let mut command = pod.command("wait-ready")?;
    command.args(["--timeout", "100ms"]);
    Finished::within(WAIT_TIMEOUT, &mut command)
}

#[tokio::test]
async fn a_version_that_does_not_fit_is_refused_and_the_old_files_stay_whole() -> Result<()> {
    // Each of 128 pages, or of 330 files with their links.
    for (options, cause) in [("size=512k", "KiB"), ("size=8m,nr_inodes=330", "files")] {
        let hub = FakeHub::start()?;
        activate(&hub, "1.0.0", 60)?;
        let mut pod = Pod::new(&hub)?.with(&USR1);
        let Some(disk) = Disk::at(pod.path("files"), options)? else { return Ok(()) };
        pod = pod.with(&["--mount-path", disk.0.to_str().context("an odd path")?]);
        pod.start_app(APP, &CATCHES).await?;
        let mut client = pod.start().await?;
        assert_files(&disk.0, "1.0.0", 60)?;

        activate(&hub, "1.0.1", 220)?;
        let report = hub.wait_for_report(WAIT_TIMEOUT, "it is refused", |report| cant_apply(report, cause)).await;
        let report = report.map_err(|error| pod.explain(&error).context(options))?;
        assert_eq!(state(&report.request), (Some("1.0.0"), true, true), "{options}");
        pod.wait_until_served(&mut client, "shop=1.0.0").await?;
        assert_files(&disk.0, "1.0.0", 60).context(options)?;
        assert!(!pod.app_output().contains("SIGUSR1"), "notified of nothing");

        activate(&hub, "1.0.2", 50)?;
        pod.app_says(1, "SIGUSR1").await?;
        assert_files(&disk.0, "1.0.2", 50).context(options)?;
        hub.wait_for_report(WAIT_TIMEOUT, "it is taken", |report| state(report) == (Some("1.0.2"), true, false))
            .await?;
        drop(pod);
    }
    Ok(())
}

#[tokio::test]
async fn a_version_that_had_no_room_is_taken_when_there_is() -> Result<()> {
    let hub = FakeHub::start()?;
    activate(&hub, "1.0.0", 20)?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    let Some(disk) = Disk::at(pod.path("files"), "size=512k")? else { return Ok(()) };
    pod = pod.with(&["--mount-path", disk.0.to_str().context("an odd path")?]);
    pod.start_app(APP, &CATCHES).await?;
    // The first version of a pod that starts, and another one while it runs.
    for (version, notified) in [("1.0.0", 0), ("1.0.1", 1)] {
        let mut in_the_way = fs::File::create(disk.0.join("in-the-way"))?;
        while in_the_way.write_all(&[0; 4096]).is_ok() {}
        drop(in_the_way);
        if notified == 0 {
            pod.spawn()?;
        } else {
            activate(&hub, version, 20)?;
        }
        let refused = |report: &ReportRequest| cant_apply(report, "KiB");
        hub.wait_for_report(WAIT_TIMEOUT, "it is refused", refused).await.map_err(|error| pod.explain(&error))?;
        fs::remove_file(disk.0.join("in-the-way"))?;
        let taken = |report: &ReportRequest| state(report) == (Some(version), true, false);
        hub.wait_for_report(WAIT_TIMEOUT, "it is taken", taken).await.map_err(|error| pod.explain(&error))?;
        assert_files(&disk.0, version, 20)?;
        pod.app_says(notified, "SIGUSR1").await?;
    }
    Ok(())
}

#[tokio::test]
async fn two_configs_that_have_room_each_but_not_together_are_taken_when_there_is() -> Result<()> {
    let hub = FakeHub::start()?;
    activate(&hub, "1.0.0", 5)?;
    hub.activate("keys", "7", &[("other", b"x")])?;
    let mut pod = Pod::new(&hub)?;
    pod.configs = crate::hub_source::TWO;
    // 128 pages.
    let Some(disk) = Disk::at(pod.path("files"), "size=512k")? else { return Ok(()) };
    pod = pod.with(&["--mount-path", disk.0.to_str().context("an odd path")?]);
    let mut client = pod.start().await?;
    let in_the_way = disk.0.join("in-the-way");
    fs::write(&in_the_way, vec![0; 60 * 4096])?;
    let (mut first, mut second) = (Ok(()), Ok(()));
    let named = |prefix: &str| (0..40).map(|number| format!("{prefix}-{number}")).collect::<Vec<_>>();
    let (keys, others) = (named("key"), named("other"));
    hub.say(|say| {
        let keys: Vec<(&str, &[u8])> = keys.iter().map(|key| (key.as_str(), &b"y"[..])).collect();
        let others: Vec<(&str, &[u8])> = others.iter().map(|key| (key.as_str(), &b"y"[..])).collect();
        first = say.config("shop").set("1.0.1", &keys);
        second = say.config("keys").set("8", &others);
    });
    first.and(second)?;
    let status = pod.wait_until_served(&mut client, "shop=1.0.1,keys=7").await?;
    ensure!(status.configs[1].problem.is_some(), "{status:?}");
    fs::remove_file(&in_the_way)?;
    pod.wait_until_served(&mut client, "shop=1.0.1,keys=8").await?;
    Ok(())
}

#[tokio::test]
async fn an_agent_that_starts_again_keeps_files_that_would_not_fit_twice() -> Result<()> {
    let hub = FakeHub::start()?;
    activate(&hub, "1.0.0", 100)?;
    let mut pod = Pod::new(&hub)?;
    let Some(disk) = Disk::at(pod.path("files"), "size=512k")? else { return Ok(()) };
    pod = pod.with(&["--mount-path", disk.0.to_str().context("an odd path")?]);
    pod.start().await?;
    assert_files(&disk.0, "1.0.0", 100)?;
    pod.kill().await?;
    // What an agent leaves that is killed while it writes.
    fs::create_dir(disk.0.join("..2026_01_01_00_00_00.left"))?;
    fs::write(disk.0.join("..2026_01_01_00_00_00.left/key-0"), vec![0; 65536])?;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    assert_files(&disk.0, "1.0.0", 100)
}

#[tokio::test]
async fn a_pod_whose_first_files_do_not_fit_does_not_start() -> Result<()> {
    let hub = FakeHub::start()?;
    activate(&hub, "1.0.0", 5000)?;
    let mut pod = Pod::new(&hub)?;
    let Some(disk) = Disk::at(pod.path("files"), "size=16m")? else { return Ok(()) };
    pod = pod.with(&["--mount-path", disk.0.to_str().context("an odd path")?]);
    pod.spawn()?;
    let report = hub.wait_for_report(WAIT_TIMEOUT, "it is refused", |report| cant_apply(report, "KiB")).await;
    let report = report.map_err(|error| pod.explain(&error))?;
    assert_eq!(state(&report.request), (None, false, true));
    let waited = check_readiness(&pod)?;
    ensure!(waited.code == Some(1) && waited.stderr.contains("KiB"), "{waited:?}");
    activate(&hub, "1.0.1", 2000)?;
    pod.client().await?;
    assert_files(&disk.0, "1.0.1", 2000)
}

#[tokio::test]
async fn files_that_cannot_be_written_are_reported_until_they_are_there() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&USR1);
    let files = pod.path("files");
    pod = pod.with(&["--mount-path", files.to_str().context("an odd path")?]);
    fs::write(&files, "in the way")?;
    pod.start_app(APP, &CATCHES).await?;
    pod.spawn()?;
    let refused = |report: &ReportRequest| cant_apply(report, "can't be written") && !report.acknowledged;
    hub.wait_for_report(WAIT_TIMEOUT, "the first files are missing", refused)
        .await
        .map_err(|error| pod.explain(&error))?;
    let waited = check_readiness(&pod)?;
    ensure!(waited.code == Some(1) && waited.stderr.contains("can't be written"), "{waited:?}");
    fs::remove_file(&files)?;
    pod.client().await?;
    assert_eq!(fs::read_to_string(files.join("lives"))?, "3");
    hub.wait_for_report(WAIT_TIMEOUT, "they are there", |report| state(report) == (Some("1.0.0"), true, false)).await?;

    // The folder is lost.
    fs::rename(&files, pod.path("aside"))?;
    fs::write(&files, "in the way")?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    hub.wait_for_report(WAIT_TIMEOUT, "the next files are missing", refused).await?;
    assert!(!pod.app_output().contains("SIGUSR1"), "notified before the files are in place");
    fs::remove_file(&files)?;
    fs::rename(pod.path("aside"), &files)?;
    pod.app_says(1, "SIGUSR1").await?;
    assert_eq!(fs::read_to_string(files.join("lives"))?, "5");
    hub.wait_for_report(WAIT_TIMEOUT, "they are there", |report| state(report) == (Some("1.0.1"), true, false)).await?;
    let ready = Finished::within(WAIT_TIMEOUT, pod.command("wait-ready")?.args(["--timeout", "30s"]))?;
    ensure!(ready.code == Some(0), "{ready:?}");
    Ok(())
}

#[tokio::test]
async fn a_config_whose_files_do_not_fit_takes_no_other_with_it() -> Result<()> {
    let hub = FakeHub::start()?;
    activate(&hub, "1.0.0", 10)?;
    hub.activate("keys", "7", &[("other", b"x")])?;
    let mut pod = Pod::new(&hub)?;
    pod.configs = crate::hub_source::TWO;
    let Some(disk) = Disk::at(pod.path("files"), "size=512k")? else { return Ok(()) };
    pod = pod.with(&["--mount-path", disk.0.to_str().context("an odd path")?]);
    let mut client = pod.start().await?;
    // Both arrive in one reply.
    let (mut bad, mut good) = (Ok(()), Ok(()));
    let keys: Vec<String> = (0..500).map(|number| format!("key-{number}")).collect();
    let values: Vec<(&str, &[u8])> = keys.iter().map(|key| (key.as_str(), &b"x"[..])).collect();
    hub.say(|say| {
        bad = say.config("shop").set("1.0.1", &values);
        good = say.config("keys").set("8", &[("other", b"y")]);
    });
    bad.and(good)?;
    let status = pod.wait_until_served(&mut client, "shop=1.0.0,keys=8").await?;
    ensure!(status.configs[0].problem.is_some() && status.configs[1].problem.is_none(), "{status:?}");
    let written = async || (fs::read(disk.0.join("other")).ok()? == b"y").then_some(());
    nudge_tests::eventually(Duration::from_secs(30), "the other config's file is written", written).await
}
