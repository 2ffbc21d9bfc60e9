//! The control plane is away: nudge-injector and nudge-hub have no replicas. Pods continue with what they have, restart
//! their containers, and start, apart from those that opt in. Who may change a config can use the time neither to take
//! its guards away nor to decide what its ConfigMap holds. Then the node's container runtime is killed. Others would
//! notice all of that, so this scenario runs alone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt as _};
use nudge_tests::binary;
use nudge_tests::cluster::installation::{NAMESPACE, SERVING};
use time::OffsetDateTime;
use tokio::try_join;

use super::failures::{TITLE, kill_and_wait, next, subscriber, two};
use super::guarded::Guarded;
use super::takeover;
use crate::node::Node;
use crate::objects::{pod, shell, template};
use crate::place::succeed;
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, containers};
use crate::suite::Suite;
use nudge_tests::eventually;

const REPLICAS: i32 = 2;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    // Built before anything is timed.
    binary::kubectl_nudge()?;
    let home = ScenarioNamespace::enabled(suite, "away").await?;
    let taken = ScenarioNamespace::enabled(suite, "away-taken").await?;
    let begun = try_join!(two(&home), Guarded::new(suite, "away-guarded", 1), takeover::decides_nothing(&taken))?;
    let ((pods, logs), guarded, ()) = begun;
    next(&home, &logs, "2", "two").await?;
    let node = home.place.inside("killing containers and containerd");

    scale(&home, 0).await?;
    let outcomes = [
        guarded.keeps_its_guards_alone().await,
        takeover::decides_nothing_alone(&taken),
        continues(suite, &home, node, &pods).await,
    ];
    let now = [home.ready_pod("app=first").await, home.ready_pod("app=second").await];
    // Others need it, however that went.
    scale(&home, REPLICAS).await?;
    outcomes.into_iter().collect::<Result<()>>()?;
    guarded.still_waits().await?;
    takeover::still_decides_nothing(&taken).await?;

    home.apply(&pod(subscriber(&home, "later")).to_string())?;
    home.ready_pod("app=later").await?;
    if let Some(node) = node {
        containerd_killed(suite, &home, node).await?;
    }
    // Anew, because an application was restarted.
    let mut logs = Vec::new();
    let now = now.into_iter().collect::<Result<Vec<_>>>()?;
    for pod in &now {
        logs.push(home.follow(pod).await?);
    }
    next(&home, &logs, "3", "three").await?;
    for pod in &now {
        same(&home, pod).await?;
    }
    Ok(())
}

/// Pods run, restart their containers, and start, apart from those that opt in.
async fn continues(
    suite: &Suite,
    home: &ScenarioNamespace<'_>,
    node: Option<&Node>,
    [first, second]: &[Pod; 2],
) -> Result<()> {
    for pod in [first, second] {
        assert_untouched(home, pod).await?;
    }
    let refused = home.apply(&pod(subscriber(home, "later")).to_string());
    let message = refused.err().context("a pod that opts in is let in without an agent")?.to_string();
    ensure!(message.contains(r#"failed calling webhook "pods.nudge.dev""#), "it is refused with: {message}");
    home.apply(&pod(template("other", &shell(home, "exec sleep 86400"))).to_string())?;
    home.ready_pod("app=other").await?;
    let Some(node) = node else { return Ok(()) };
    let restarts =
        try_join!(kill_and_wait(home, node, first, "app"), kill_and_wait(home, node, second, "nudge-agent"))?;
    for (pod, what, took) in [(first, "application", restarts.0), (second, "agent", restarts.1)] {
        suite.report.row(TITLE, &[format!("{what}, without a control plane"), seconds(took)]);
        // The container gets the version that was current last, not the version that the pod was created with.
        let greeting = home.kubectl(&["exec", &pod.name_any(), "-c", "app", "--", "nudge-agent", "get", "greeting"])?;
        ensure!(greeting.trim() == "two", "after the end of its {what} the agent of a pod serves {greeting:?}");
    }
    let log = LogParams { container: Some("app".to_owned()), ..LogParams::default() };
    let log = eventually(WAIT_TIMEOUT, "the restarted application says something", async || {
        home.space.api::<Pod>().logs(&first.name_any(), &log).await.ok().filter(|log| !log.is_empty())
    })
    .await?;
    ensure!(log.lines().all(|line| line == "has two"), "the restarted application says {log:?}");
    Ok(())
}

/// Sets how many replicas nudge-injector and nudge-hub have, and waits until they have them.
async fn scale(home: &ScenarioNamespace<'_>, replicas: i32) -> Result<()> {
    let count = format!("--replicas={replicas}");
    let both = ["nudge-injector", "nudge-hub"];
    succeed(home.place.command("kubectl").args(["-n", NAMESPACE, "scale", "deployment"]).args(both).arg(&count))?;
    let deployments: Api<Deployment> = Api::namespaced(home.space.client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(home.space.client.clone(), NAMESPACE);
    let expected = both.len() * usize::try_from(replicas)?;
    eventually(LONG_WAIT_TIMEOUT, &format!("the control plane has {replicas} replicas"), async || {
        for name in both {
            let status = deployments.get(name).await.ok()?.status?;
            (status.ready_replicas.unwrap_or_default() == replicas).then_some(())?;
        }
        let listed_pods = pods.list(&ListParams::default().labels(SERVING)).await.ok()?.items.len();
        (listed_pods == expected).then_some(())
    })
    .await?;
    if replicas > 0 {
        // The API server learns of the new endpoints a moment later.
        let probe = pod(subscriber(home, "probe")).to_string();
        eventually(WAIT_TIMEOUT, "pods that opt in are let in", async || {
            home.apply_with(&["--dry-run=server"], &probe).ok()
        })
        .await?;
    }
    Ok(())
}

/// Fails unless the pod and its containers are the same as before, whatever was before.
async fn same(home: &ScenarioNamespace<'_>, before: &Pod) -> Result<()> {
    let now = home.space.api::<Pod>().get(&before.name_any()).await?;
    ensure!(now.metadata.uid == before.metadata.uid, "{} is another pod", before.name_any());
    ensure!(containers(&now) == containers(before), "had {:?} and has {:?}", containers(before), containers(&now));
    Ok(())
}

/// The node starts it again, as a service manager does.
async fn containerd_killed(suite: &Suite, home: &ScenarioNamespace<'_>, node: &Node) -> Result<()> {
    let process = || node.exec(&["pidof", "containerd"]).map(|id| id.trim().to_owned());
    let before = process()?;
    let began = OffsetDateTime::now_utc();
    node.exec(&["kill", "-KILL", &before])?;
    eventually(WAIT_TIMEOUT, "containerd is there again", async || {
        let now = process().ok()?;
        (now != before && node.exec(&["ctr", "version"]).is_ok()).then_some(())
    })
    .await?;
    // The kubelet has found it again when it runs commands in containers.
    eventually(LONG_WAIT_TIMEOUT, "the kubelet uses it", async || {
        home.kubectl(&["exec", "first", "-c", "app", "--", "true"]).ok()
    })
    .await?;
    let elapsed = Duration::try_from(OffsetDateTime::now_utc() - began)?;
    suite.report.row(TITLE, &["containerd: until commands run in pods".to_owned(), seconds(elapsed)]);
    Ok(())
}
