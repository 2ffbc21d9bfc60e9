//! Which processes are a container's: those of the control group that has its ID in its name.

use anyhow::Result;
use nudge_protocol::ContainerName;
use nudge_protocol::hub::PodContainer;
use nudge_protocol::status::Outcome;
use nudge_tests::cgroup::Cgroup;
use nudge_tests::hub_tls::sha256;
use nudge_tests::scene::SOON;
use nudge_tests::{FakeHub, Pod};

use crate::{APP, CATCHES, USR1};

/// A container ID of this test run alone.
fn id(name: &str) -> String {
    sha256(format!("{name} {}", std::process::id()).as_bytes())
}

fn app(id: &str) -> Result<Vec<PodContainer>> {
    Ok(vec![PodContainer { name: ContainerName::new("app")?, id: id.to_owned(), ended: false }])
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
    let waits = |report: &nudge_protocol::hub::ReportRequest| report.containers[0].message.contains("has not said yet");
    hub.reported(SOON, "the ID is waited for", waits).await?;
    assert!(!pod.app_output().contains("SIGUSR1"));
    // As soon as the ID is known the signal goes out.
    let known = app(&first)?;
    hub.say(|say| say.containers = known);
    pod.app_says(1, "SIGUSR1").await?;
    let delivered = |report: &nudge_protocol::hub::ReportRequest| report.containers[0].outcome == Outcome::Delivered;
    hub.reported(SOON, "it is delivered", delivered).await?;

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
