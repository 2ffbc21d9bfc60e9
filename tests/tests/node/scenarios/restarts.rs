//! A Deployment whose pods have an agent and take a version by restarts alone, at default settings: its config is named
//! by an annotation, there is no ConfigMap of that name, and only a Secret differs. No version is current that its
//! processes have not been born with: while nobody may restart them, the rollout is held and says so; restarted by
//! hand, or by Nudge, they have it, and those of before served meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::log::Log;
use crate::objects::{deployment, list, opted_in, shell};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Two pods that take a version by restarts, from spec.version";
const PODS: usize = 2;
const VERSIONS: [(&str, &str); 3] = [("1", "first"), ("2", "second"), ("3", "third")];

/// Says what its endpoint has, at its start and whenever that is another.
const APP: &str = r#"
    while :; do
        now=$(nudge-agent get password) && [ "$now" != "$was" ] && echo "has $now $(nudge-agent get mode)" && was=$now
        sleep 0.2
    done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "restarts").await?;
    home.kubectl(&["apply", "-k", "deploy/namespace/secrets"])?;
    let parts = VERSIONS.iter().flat_map(|(version, password)| parts(version, password));
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "vault"}, "spec": {"version": "1"},
    });
    home.apply(&list(parts.chain([config])))?;
    home.wait_until_current("vault", "1").await?;
    let annotations = [("configs", "vault"), ("notify", "rollout")];
    let count = i32::try_from(PODS)?;
    home.apply(&deployment(&opted_in("vault", &shell(&home, APP), &annotations), count).to_string())?;
    let first = run_with(&home, "first", &BTreeSet::new()).await?;

    // Nobody may restart them.
    home.activate("vault", "2").await?;
    let activated = OffsetDateTime::now_utc();
    let status = wait_for_status(&home, "the rollout is held", |status| reason(status) == Some("NotRestarted")).await?;
    row(suite, "without the right to restart them: held", activated)?;
    ensure!(status.current_version.as_deref() == Some("1") && status.pods.summary == "0/2", "{status:#?}");
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").context("no condition")?;
    for text in ["2 pods of Deployment/vault", "bind ClusterRole nudge-restart", "nudge enable", "restart it yourself"]
    {
        ensure!(ready.message.contains(text), "{}", ready.message);
    }
    for (pod, log) in &first {
        assert_untouched(&home, pod).await?;
        ensure!(endpoint_versions(log).len() == 1, "{:?}", log.lines());
    }

    // By hand, as the message says.
    home.kubectl(&["rollout", "restart", "deployment/vault"])?;
    let second = become_current(&home, "2", "second", &first).await?;
    row(suite, "then restarted by hand: current", activated)?;

    home.kubectl(&["apply", "-k", "deploy/namespace/restart"])?;
    home.activate("vault", "3").await?;
    let activated = OffsetDateTime::now_utc();
    become_current(&home, "3", "third", &second).await?;
    row(suite, "with the right: restarted, current", activated)
}

/// Returns a version of two parts, of which the Secret alone differs.
fn parts(version: &str, password: &str) -> [Value; 2] {
    let meta = |kind: &str, part: &str| {
        json!({
            "name": format!("vault-{version}-{kind}"),
            "labels": {"nudge.dev/config": "vault", "nudge.dev/version": version, "nudge.dev/part": part},
            "annotations": {"nudge.dev/parts": "2"},
        })
    };
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("open", "1"), "immutable": true, "data": {"mode": "fast"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("secret", "2"), "immutable": true, "stringData": {"password": password}}),
    ]
}

fn reason(status: &VersionedConfigStatus) -> Option<&str> {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "False");
    ready.map(|ready| ready.reason.as_str())
}

async fn wait_for_status(
    home: &ScenarioNamespace<'_>,
    what: &str,
    is: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<VersionedConfigStatus> {
    let configs = home.space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, what, async || configs.get("vault").await.ok()?.status.filter(&is)).await
}

/// Returns what its endpoint had, one after the other. While a pod ends there may be none any more.
fn endpoint_versions(log: &Log) -> Vec<String> {
    log.lines().into_iter().map(|line| line.text).filter(|text| text.starts_with("has ")).collect()
}

/// Returns the pods that are not terminating.
async fn pods(home: &ScenarioNamespace<'_>) -> Result<Vec<Pod>> {
    let mut pods = home.space.api::<Pod>().list(&ListParams::default().labels("app=vault")).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(pods)
}

/// Waits until two pods that are none of these run, and began with that password.
async fn run_with(home: &ScenarioNamespace<'_>, password: &str, not: &BTreeSet<String>) -> Result<Vec<(Pod, Log)>> {
    let pods = eventually(LONG_WAIT_TIMEOUT, &format!("two pods run with {password}"), async || {
        let pods = pods(home).await.ok()?;
        let new = |pod: &Pod| is_ready(pod) && pod.uid().is_some_and(|uid| !not.contains(&uid));
        (pods.len() == PODS && pods.iter().all(new)).then_some(pods)
    })
    .await?;
    let mut running = Vec::new();
    for pod in pods {
        let log = home.follow(&pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, &format!("has {password} fast")).await?;
        ensure!(endpoint_versions(&log).len() == 1, "it did not begin with that: {:?}", log.lines());
        running.push((pod, log));
    }
    Ok(running)
}

/// Waits until the version is current, which must not be before the new pods run it. Two pods serve all the time, and
/// those of before never see another version.
async fn become_current(
    home: &ScenarioNamespace<'_>,
    version: &str,
    password: &str,
    before: &[(Pod, Log)],
) -> Result<Vec<(Pod, Log)>> {
    let (configs, deployments) = (home.space.api::<VersionedConfig>(), home.space.api::<Deployment>());
    let old: BTreeSet<String> = before.iter().filter_map(|(pod, _)| pod.uid()).collect();
    eventually(LONG_WAIT_TIMEOUT, &format!("version {version} is current"), async || {
        let status = configs.get("vault").await.ok()?.status?;
        let available = deployments.get("vault").await.ok()?.status?.available_replicas.unwrap_or_default();
        if usize::try_from(available).ok()? < PODS {
            return Some(Err(anyhow!("only {available} pods are available")));
        }
        if status.current_version.as_deref() != Some(version) {
            return None;
        }
        let left = pods(home).await.ok()?.iter().filter(|pod| pod.uid().is_some_and(|uid| old.contains(&uid))).count();
        let right = left == 0 && status.pods.summary == "2/2";
        Some(if right { Ok(()) } else { Err(anyhow!("current while {left} old pods run: {status:#?}")) })
    })
    .await??;
    let after = run_with(home, password, &old).await?;
    for (pod, log) in before {
        ensure!(
            endpoint_versions(log).len() == 1,
            "pod {} has seen more than it began with: {:?}",
            pod.name_any(),
            log.lines()
        );
    }
    Ok(after)
}

fn row(suite: &Suite, what: &str, from: OffsetDateTime) -> Result<()> {
    let elapsed = Duration::try_from(OffsetDateTime::now_utc() - from)?;
    suite.report.row(TITLE, &[what.to_owned(), seconds(elapsed)]);
    Ok(())
}
