//! Which processes are a container's: those of the control group that has its ID in its name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Uid;
use nudge_protocol::ContainerName;
use nudge_protocol::hub::PodContainer;
use nudge_protocol::pod::env;
use nudge_protocol::status::{Outcome, Status};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::cgroup::Cgroup;
use nudge_tests::fakes::hub_tls::sha256;
use nudge_tests::{FakeHub, Pod, Process, binary, eventually, tools};

use crate::hub_source::{APP, CATCHES, USR1};

/// Returns a container ID of this test run alone.
fn id(name: &str) -> String {
    sha256(format!("{name} {}", std::process::id()).as_bytes())
}

fn container(name: &str, id: &str, ended: bool) -> Result<PodContainer> {
    Ok(PodContainer { name: ContainerName::new(name)?, id: id.to_owned(), ended })
}

fn app(id: &str) -> Result<Vec<PodContainer>> {
    Ok(vec![container("app", id, false)?])
}

#[tokio::test]
async fn the_processes_of_a_container_are_found_by_its_id_also_after_a_restart() -> Result<()> {
    let (first, second) = (id("first"), id("second"));
    let Some(one) = Cgroup::new(&format!("cri-containerd-{first}.scope")) else { return Ok(()) };
    let Some(two) = Cgroup::new(&second) else { return Ok(()) };
    let hub = FakeHub::start()?;
    let unknown = app("")?;
    hub.say(|say| say.containers = unknown);
    let mut pod = Pod::new(&hub)?.with(&USR1);
    pod.start_process(APP, &CATCHES).await?;
    one.take(pod.app_pid()?)?;
    pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let waits =
        |report: &nudge_protocol::hub::ReportRequest| report.containers[0].message.contains("has not reported yet");
    hub.wait_for_report(WAIT_TIMEOUT, "the ID is waited for", waits).await?;
    assert!(!pod.app_output().contains("SIGUSR1"));
    // As soon as the ID is known the signal goes out.
    let known = app(&first)?;
    hub.say(|say| say.containers = known);
    pod.app_says(1, "SIGUSR1").await?;
    let delivered = |report: &nudge_protocol::hub::ReportRequest| report.containers[0].outcome == Outcome::Delivered;
    hub.wait_for_report(WAIT_TIMEOUT, "it is delivered", delivered).await?;

    // The container starts again: another process, another ID, and a new file for its output.
    pod.start_process(APP, &CATCHES).await?;
    two.take(pod.app_pid()?)?;
    let known = app(&second)?;
    hub.say(|say| say.containers = known);
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    pod.app_says(1, "SIGUSR1").await?;
    assert_eq!(pod.app_output().matches("SIGUSR1").count(), 1, "once, for what came after its start");
    drop(pod);
    Ok(())
}

/// Returns a script that enters a group, takes it for the root of a cgroup namespace of its own, and becomes `program`
/// there.
fn script_within(script: PathBuf, group: &Cgroup, program: &Path) -> Result<PathBuf> {
    let (group, program) = (group.processes(), program.display());
    fs::write(&script, format!("#!/bin/sh\necho $$ >{} && exec unshare --cgroup {program} \"$@\"\n", group.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

#[tokio::test]
async fn with_cgroup_v2_and_a_namespace_for_each_container_only_its_own_processes_are_notified() -> Result<()> {
    let Some(group) = Cgroup::new_v2(&format!("nudge-pod-{}", std::process::id())) else { return Ok(()) };
    let (app, web) = (id("app of v2"), id("web of v2"));
    let below = |name: &str| group.below(name).context("no group");
    // As containerd and CRI-O name them, with CRI-O's monitor, and the group that an init such as systemd makes for
    // itself.
    let own_group = below(&format!("cri-containerd-{}.scope", id("own")))?;
    let app_group = below(&format!("cri-containerd-{app}.scope"))?;
    let web_group = below(&format!("crio-{web}.scope"))?;
    let init_group = web_group.below("init").context("no group")?;
    let monitor_group = below(&format!("crio-conmon-{app}.scope"))?;
    let other_group = below(&format!("cri-containerd-{}.scope", id("other")))?;

    let scripts = tempfile::tempdir()?;
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?.with(&["--notify", "app=SIGUSR1,web=SIGUSR1"]);
    pod.binary = Some(script_within(scripts.path().join("agent"), &own_group, binary::debug()?)?);
    let mut processes = Vec::new();
    let groups = [("app", &app_group), ("web", &init_group), ("monitor", &monitor_group), ("other", &other_group)];
    for (name, group) in groups {
        let output = scripts.path().join(format!("{name}.out"));
        let script = script_within(scripts.path().join(name), group, Path::new(APP))?;
        let mut command = Command::new(script);
        command.args(CATCHES).stdin(Stdio::null()).stdout(fs::File::create(&output)?);
        let process = Process::spawn(name, &mut command)?;
        let says = async |what: &str| {
            let says_it = async || fs::read_to_string(&output).ok()?.contains(what).then_some(());
            eventually(WAIT_TIMEOUT, what, says_it).await
        };
        if let Err(error) = says("ready").await {
            ensure!(!Uid::effective().is_root(), "{error:#}");
            tools::skipped("only root can make a cgroup namespace");
            return Ok(());
        }
        processes.push((process, output));
    }
    let known = vec![container("app", &app, false)?, container("web", &web, false)?];
    hub.say(|say| say.containers = known);
    let mut client = pod.start().await?;
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    let done =
        |status: &Status| status.containers.iter().all(|container| container.notified.outcome == Outcome::Delivered);
    let status = pod.status_when(&mut client, WAIT_TIMEOUT, "both are notified", done).await?;
    for (container, (process, output)) in status.containers.iter().zip(&processes) {
        ensure!(container.notified.processes == [process.pid()], "{container:?}, not {}", process.pid());
        let message_of = async || fs::read_to_string(output).ok()?.contains("SIGUSR1").then_some(());
        eventually(WAIT_TIMEOUT, "it has the signal", message_of).await?;
    }
    for (_, output) in &processes[2..] {
        ensure!(!fs::read_to_string(output)?.contains("SIGUSR1"), "{}", output.display());
    }
    drop((pod, processes));
    Ok(())
}

#[tokio::test]
async fn with_the_setting_it_ends_cleanly_when_all_other_containers_have() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    // As the injector sets it.
    pod.variables.push((env::END_WITH_CONTAINERS, "true".to_owned()));
    let mut client = pod.start().await?;
    let (app, helper) = (id("app"), id("helper"));
    let states = [vec![("app", true), ("helper", false)], vec![("nudge-agent", true)], vec![]];
    for (round, state) in states.into_iter().enumerate() {
        let containers = state.iter().map(|(name, ended)| container(name, &app, *ended)).collect::<Result<_>>()?;
        hub.say(|say| say.containers = containers);
        let version = format!("1.1.{round}");
        hub.activate("shop", &version, &[("lives", b"5")])?;
        pod.wait_until_served(&mut client, &format!("shop={version}")).await?;
    }
    let ended = vec![container("app", &app, true)?, container("helper", &helper, true)?];
    hub.say(|say| say.containers = ended);
    let status = pod.agent.as_mut().context("no agent")?.process().wait_for_exit(WAIT_TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    pod.logs("all other containers of this pod have ended").await
}

#[tokio::test]
async fn without_the_setting_it_stays() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    let ended = vec![container("app", &id("stays"), true)?];
    hub.say(|say| say.containers = ended);
    hub.activate("shop", "1.0.1", &[("lives", b"5")])?;
    pod.wait_until_served(&mut client, "shop=1.0.1").await.map(drop)
}
