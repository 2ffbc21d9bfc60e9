//! An agent is killed: it comes back as who it was, its application is not touched, and both get the next version.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use nudge_tests::cluster::installation::at_once;
use serde_json::json;
use time::OffsetDateTime;

use crate::log::Log;
use crate::node::Node;
use crate::objects::{config, opted_in, pod, shell};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, containers, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

pub(super) const TITLE: &str = "What is killed, until it is there again";

/// Says what it has, at its start and when it is notified. The agent may be restarting.
pub(super) const APP: &str = r#"
    notified=yes
    trap 'notified=yes' USR1
    while :; do
        if [ "$notified" ] && greeting=$(nudge-agent get greeting); then notified=; echo "has $greeting"; fi
        sleep 0.1
    done"#;

/// What clients of the agent keep for the pod's life, without the token itself.
const IDENTITY: &str = r#"cat "$MY_CONFIG_TOKEN_FILE" "$MY_CONFIG_CERT" | sha256sum"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "failures").await?;
    let Some(node) = home.place.inside("killing an agent") else { return Ok(()) };
    let (pods, logs) = two(&home).await?;
    let [first, second] = &pods;
    agent_killed(suite, &home, node, first).await?;
    next(&home, &logs, "2", "two").await?;
    assert_untouched(&home, second).await
}

/// Returns two pods with version 1 of a config that has three, and their logs.
pub(super) async fn two(home: &ScenarioNamespace<'_>) -> Result<([Pod; 2], [Log; 2])> {
    let versions = ["one", "two", "three"].map(|it| json!({"greeting": it}));
    let [one, two, three] = versions;
    home.apply(&config("tough", &[("1", one), ("2", two), ("3", three)], &at_once()))?;
    home.wait_until_current("tough", "1").await?;
    for name in ["first", "second"] {
        home.apply(&pod(subscriber(home, name)).to_string())?;
    }
    let pods = [home.ready_pod("app=first").await?, home.ready_pod("app=second").await?];
    let logs = [home.follow(&pods[0]).await?, home.follow(&pods[1]).await?];
    for log in &logs {
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has one").await?;
    }
    Ok((pods, logs))
}

/// Another version, which both have then.
pub(super) async fn next(home: &ScenarioNamespace<'_>, logs: &[Log], version: &str, greeting: &str) -> Result<()> {
    home.activate("tough", version).await?;
    for log in logs {
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, &format!("has {greeting}")).await?;
    }
    home.wait_until_current("tough", version).await
}

pub(super) fn subscriber(home: &ScenarioNamespace<'_>, name: &str) -> serde_json::Value {
    opted_in(name, &shell(home, APP), &[("configs", "tough"), ("notify", "SIGUSR1")])
}

/// The agent comes back as who it was, and the application is not touched.
async fn agent_killed(suite: &Suite, home: &ScenarioNamespace<'_>, node: &Node, pod: &Pod) -> Result<()> {
    let name = pod.name_any();
    let identity = || home.kubectl(&["exec", &name, "-c", "app", "--", "sh", "-c", IDENTITY]);
    let before = identity()?;
    let elapsed = kill_and_wait(home, node, pod, "nudge-agent").await?;
    ensure!(identity()? == before, "the agent has another token or certificate");
    suite.report.row(TITLE, &["agent: until the pod is Ready".to_owned(), seconds(elapsed)]);
    // The way that TROUBLESHOOTING names where the application's image has no program of ours.
    let status = home.kubectl(&["exec", &name, "-c", "nudge-agent", "--", "/nudge-agent", "status"])?;
    ensure!(status.contains("tough"), "the agent's own container says: {status}");
    let app = |pod: &Pod| containers(pod).into_iter().find(|(name, ..)| name == "app");
    let now = home.space.api::<Pod>().get(&name).await?;
    ensure!(app(&now).is_some() && app(&now) == app(pod), "the application was {:?} and is {:?}", app(pod), app(&now));
    Ok(())
}

/// Kills a container of the pod that was never restarted, and waits until it and the pod are ready again.
pub(super) async fn kill_and_wait(
    home: &ScenarioNamespace<'_>,
    node: &Node,
    pod: &Pod,
    container: &str,
) -> Result<Duration> {
    let name = pod.name_any();
    let all = containers(&home.space.api::<Pod>().get(&name).await?);
    let (_, id, _) = all.into_iter().find(|(name, ..)| name == container).context("no such container")?;
    let id = id.as_deref().and_then(|id| id.strip_prefix("containerd://")).context("not containerd's")?.to_owned();
    let script = r#"kill -KILL "$(ctr --namespace k8s.io tasks list | awk -v id="$0" '$1 == id { print $2 }')""#;
    let began = OffsetDateTime::now_utc();
    node.exec(&["sh", "-ec", script, &id])?;
    let pods = home.space.api::<Pod>();
    eventually(LONG_WAIT_TIMEOUT, &format!("{container} of {name} is there again"), async || {
        let pod = pods.get(&name).await.ok()?;
        let status = pod.status.as_ref()?;
        let mut all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let ContainerStatus { ready, restart_count, .. } = all.find(|status| status.name == container)?;
        (*ready && *restart_count == 1 && is_ready(&pod)).then_some(())
    })
    .await?;
    Ok(Duration::try_from(OffsetDateTime::now_utc() - began)?)
}
