//! `nudge-agent wait-ready`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use nudge_protocol::hub::HubReason;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{FakeHub, Finished, Pod, Process, binary};

fn wait_ready(pod: &Pod, time: &str) -> Result<Process> {
    let mut command: Command = pod.command("wait-ready")?;
    command.args(["--timeout", time, "--termination-log"]).arg(pod.path("termination"));
    command.stdin(Stdio::null()).stderr(fs::File::create(pod.path("wait.err"))?);
    fs::write(pod.path("termination"), "")?;
    Process::spawn("wait-ready", &mut command)
}

#[tokio::test]
async fn it_returns_when_configuration_is_served_and_the_files_for_containers_exist() -> Result<()> {
    let mut hub = FakeHub::start()?;
    hub.down().await?;
    let mut pod = Pod::new(&hub)?;
    // As by the kubelet, it may be started before the agent has done anything.
    let mut waiting = wait_ready(&pod, "60s")?;
    pod.spawn()?;
    pod.logs("poll of the hub failed").await?;
    ensure!(waiting.try_exited()?.is_none(), "there is nothing to read yet");
    hub.up()?;
    ensure!(waiting.wait_for_exit(WAIT_TIMEOUT).await?.success(), "{}", fs::read_to_string(pod.path("wait.err"))?);
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    for file in ["token", "ca.crt", "env"] {
        assert_eq!(fs::metadata(pod.path("share").join(file))?.permissions().mode() & 0o777, 0o444);
    }
    let (env, token) = (fs::read_to_string(pod.path("share/env"))?, fs::read_to_string(pod.path("share/token"))?);
    let endpoint = format!("https://{}/config", client.address());
    assert_eq!(env, format!("MY_CONFIG_TOKEN='{token}'\nMY_CONFIG_ENDPOINT='{endpoint}'\n"));
    let mut again = wait_ready(&pod, "60s")?;
    ensure!(again.wait_for_exit(WAIT_TIMEOUT).await?.success());
    Ok(())
}

/// `nudge-agent status` in the agent's own container, which has none of the variables that applications get.
fn status_of_its_own(pod: &Pod) -> Result<Finished> {
    let mut command = Command::new(binary::debug()?);
    command.arg("status").env_clear().env("NUDGE_SHARE_DIR", pod.path("share"));
    Finished::within(WAIT_TIMEOUT, &mut command)
}

#[tokio::test]
async fn in_the_agents_own_container_status_finds_the_agent() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let early = status_of_its_own(&pod)?;
    ensure!(early.code == Some(1) && early.stderr.contains("the agent has not started yet"), "{early:?}");
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    let status = status_of_its_own(&pod)?;
    ensure!(status.code == Some(0) && status.stdout.contains("shop"), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn it_gives_up_with_the_reason() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.say(|say| say.config("shop").fail(HubReason::NotFound, "there is no config shop; create it"));
    let mut pod = Pod::new(&hub)?;
    let mut early = wait_ready(&pod, "50ms")?;
    assert_eq!(early.wait_for_exit(WAIT_TIMEOUT).await?.code(), Some(1));
    ensure!(fs::read_to_string(pod.path("termination"))?.contains("the agent has not"), "nothing runs");

    pod.spawn()?;
    pod.logs("the last good version stays").await?;
    let mut waiting = wait_ready(&pod, "500ms")?;
    assert_eq!(waiting.wait_for_exit(WAIT_TIMEOUT).await?.code(), Some(1));
    for file in ["termination", "wait.err"] {
        let reason = fs::read_to_string(pod.path(file))?;
        ensure!(reason.contains("no configuration within 0.5 s") && reason.contains("create it"), "{file}: {reason}");
    }
    Ok(())
}
