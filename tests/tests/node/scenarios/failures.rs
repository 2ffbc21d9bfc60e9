//! Parts of it all are killed or go away: the agent, the control plane, the node's container runtime. Pods go on with what they have.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt as _};
use nudge_tests::cluster::installation::{NAMESPACE, SERVING, at_once};
use nudge_tests::eventually;
use serde_json::json;
use time::OffsetDateTime;

use crate::node::Node;
use crate::objects::{config, opted_in, pod, shell, template};
use crate::place::succeed;
use crate::report::seconds;
use crate::space::{Home, LONG, SOON, containers, is_ready, is_untouched};
use crate::suite::Suite;

const TITLE: &str = "What is killed, until it is there again";
pub(super) const REPLICAS: i32 = 2;

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
    let home = Home::enabled(suite, "failures").await?;
    let versions = ["one", "two", "three"].map(|it| json!({"greeting": it}));
    let [one, two, three] = versions;
    home.apply(&config("tough", &[("1", one), ("2", two), ("3", three)], &at_once()))?;
    home.is_current("tough", "1").await?;
    for name in ["first", "second"] {
        home.apply(&pod(subscriber(&home, name)).to_string())?;
    }
    let first = home.ready_pod("app=first").await?;
    let second = home.ready_pod("app=second").await?;
    let logs = [home.follow(&first).await?, home.follow(&second).await?];
    for log in &logs {
        log.line(OffsetDateTime::UNIX_EPOCH, SOON, "has one").await?;
    }
    let node = home.place.inside("killing agents, containers and containerd");
    if let Some(node) = node {
        agent_killed(suite, &home, node, &first).await?;
    }
    home.activate("tough", "2").await?;
    for log in &logs {
        log.line(OffsetDateTime::UNIX_EPOCH, SOON, "has two").await?;
    }
    home.is_current("tough", "2").await?;
    is_untouched(&home, &second).await?;

    let first = home.ready_pod("app=first").await?;
    scale(&home, 0).await?;
    let alone = without_control_plane(suite, &home, node, &second).await;
    // Others need it, however that went.
    scale(&home, REPLICAS).await?;
    alone?;
    same(&home, &first).await?;
    home.apply(&pod(subscriber(&home, "later")).to_string())?;
    home.ready_pod("app=later").await?;

    let before = [home.ready_pod("app=first").await?, home.ready_pod("app=second").await?];
    if let Some(node) = node {
        containerd_killed(suite, &home, node).await?;
    }
    // Anew, because the second application was restarted.
    let logs = [home.follow(&before[0]).await?, home.follow(&before[1]).await?];
    home.activate("tough", "3").await?;
    for (pod, log) in before.iter().zip(&logs) {
        log.line(OffsetDateTime::UNIX_EPOCH, SOON, "has three").await?;
        same(&home, pod).await?;
    }
    home.is_current("tough", "3").await
}

fn subscriber(home: &Home<'_>, name: &str) -> serde_json::Value {
    opted_in(name, &shell(home, APP), &[("configs", "tough"), ("notify", "SIGUSR1")])
}

/// The agent comes back as who it was, and the application is not touched.
async fn agent_killed(suite: &Suite, home: &Home<'_>, node: &Node, pod: &Pod) -> Result<()> {
    let name = pod.name_any();
    let identity = || home.kubectl(&["exec", &name, "-c", "app", "--", "sh", "-c", IDENTITY]);
    let before = identity()?;
    let took = restarted(home, node, pod, "nudge-agent").await?;
    ensure!(identity()? == before, "the agent has another token or certificate");
    suite.report.row(TITLE, &["agent: until the pod is Ready".to_owned(), seconds(took)]);
    // The way that TROUBLESHOOTING names where the application's image has no program of ours.
    let status = home.kubectl(&["exec", &name, "-c", "nudge-agent", "--", "/nudge-agent", "status"])?;
    ensure!(status.contains("tough"), "the agent's own container says: {status}");
    let app = |pod: &Pod| containers(pod).into_iter().find(|(name, ..)| name == "app");
    let now = home.space.api::<Pod>().get(&name).await?;
    ensure!(app(&now).is_some() && app(&now) == app(pod), "the application was {:?} and is {:?}", app(pod), app(&now));
    Ok(())
}

/// Pods run, restart their containers, and start, apart from those that opt in.
async fn without_control_plane(suite: &Suite, home: &Home<'_>, node: Option<&Node>, pod: &Pod) -> Result<()> {
    is_untouched(home, pod).await?;
    let refused = home.apply(&self::pod(subscriber(home, "later")).to_string());
    let message = refused.err().context("a pod that opts in is let in without an agent")?.to_string();
    ensure!(message.contains(r#"failed calling webhook "pods.nudge.dev""#), "it is refused with: {message}");
    home.apply(&self::pod(template("other", &shell(home, "exec sleep 86400"))).to_string())?;
    home.ready_pod("app=other").await?;
    let Some(node) = node else { return Ok(()) };
    for (container, what) in [("app", "application"), ("nudge-agent", "agent")] {
        let took = restarted(home, node, pod, container).await?;
        suite.report.row(TITLE, &[format!("{what}, without a control plane"), seconds(took)]);
        // It gets what was current, and not what the pod was born with.
        let greeting = home.kubectl(&["exec", &pod.name_any(), "-c", "app", "--", "nudge-agent", "get", "greeting"])?;
        ensure!(greeting.trim() == "two", "after the end of {container} the agent serves {greeting:?}");
    }
    let log = LogParams { container: Some("app".to_owned()), ..LogParams::default() };
    let log = home.space.api::<Pod>().logs(&pod.name_any(), &log).await?;
    ensure!(log.lines().all(|line| line == "has two") && !log.is_empty(), "the restarted application says {log:?}");
    Ok(())
}

/// Kills a container of the pod that was never restarted, and waits until it and the pod are ready again.
async fn restarted(home: &Home<'_>, node: &Node, pod: &Pod, container: &str) -> Result<Duration> {
    let name = pod.name_any();
    let all = containers(&home.space.api::<Pod>().get(&name).await?);
    let (_, id, _) = all.into_iter().find(|(name, ..)| name == container).context("no such container")?;
    let id = id.as_deref().and_then(|id| id.strip_prefix("containerd://")).context("not containerd's")?.to_owned();
    let script = r#"kill -KILL "$(ctr --namespace k8s.io tasks list | awk -v id="$0" '$1 == id { print $2 }')""#;
    let began = OffsetDateTime::now_utc();
    node.exec(&["sh", "-ec", script, &id])?;
    let pods = home.space.api::<Pod>();
    eventually(LONG, &format!("{container} of {name} is there again"), async || {
        let pod = pods.get(&name).await.ok()?;
        let status = pod.status.as_ref()?;
        let mut all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let ContainerStatus { ready, restart_count, .. } = all.find(|status| status.name == container)?;
        (*ready && *restart_count == 1 && is_ready(&pod)).then_some(())
    })
    .await?;
    Ok(Duration::try_from(OffsetDateTime::now_utc() - began)?)
}

/// Sets how many replicas nudge-injector and nudge-hub have, and waits until they have them.
pub(super) async fn scale(home: &Home<'_>, replicas: i32) -> Result<()> {
    let count = format!("--replicas={replicas}");
    let both = ["nudge-injector", "nudge-hub"];
    succeed(home.place.command("kubectl").args(["-n", NAMESPACE, "scale", "deployment"]).args(both).arg(&count))?;
    let deployments: Api<Deployment> = Api::namespaced(home.space.client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(home.space.client.clone(), NAMESPACE);
    let expected = both.len() * usize::try_from(replicas)?;
    eventually(LONG, &format!("the control plane has {replicas} replicas"), async || {
        for name in both {
            let status = deployments.get(name).await.ok()?.status?;
            (status.ready_replicas.unwrap_or_default() == replicas).then_some(())?;
        }
        let there = pods.list(&ListParams::default().labels(SERVING)).await.ok()?.items.len();
        (there == expected).then_some(())
    })
    .await?;
    if replicas > 0 {
        // The API server learns of the new endpoints a moment later.
        let probe = pod(subscriber(home, "probe")).to_string();
        eventually(SOON, "pods that opt in are let in", async || home.apply_with(&["--dry-run=server"], &probe).ok())
            .await?;
    }
    Ok(())
}

/// Fails unless the pod and its containers are the same as before, whatever was before.
async fn same(home: &Home<'_>, before: &Pod) -> Result<()> {
    let now = home.space.api::<Pod>().get(&before.name_any()).await?;
    ensure!(now.metadata.uid == before.metadata.uid, "{} is another pod", before.name_any());
    ensure!(containers(&now) == containers(before), "had {:?} and has {:?}", containers(before), containers(&now));
    Ok(())
}

/// The node starts it anew, as a service manager does.
async fn containerd_killed(suite: &Suite, home: &Home<'_>, node: &Node) -> Result<()> {
    let process = || node.exec(&["pidof", "containerd"]).map(|id| id.trim().to_owned());
    let before = process()?;
    let began = OffsetDateTime::now_utc();
    node.exec(&["kill", "-KILL", &before])?;
    eventually(SOON, "containerd is there again", async || {
        let now = process().ok()?;
        (now != before && node.exec(&["ctr", "version"]).is_ok()).then_some(())
    })
    .await?;
    // The kubelet has found it again when it runs commands in containers.
    eventually(LONG, "the kubelet uses it", async || home.kubectl(&["exec", "first", "-c", "app", "--", "true"]).ok())
        .await?;
    let took = Duration::try_from(OffsetDateTime::now_utc() - began)?;
    suite.report.row(TITLE, &["containerd: until commands run in pods".to_owned(), seconds(took)]);
    Ok(())
}
