//! How far a bad version gets with everything at its default: a readiness probe of default timing, and no
//! `spec.rollout`. It reaches one pod of eight, which is watched for as long as the probe needs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_api::{ConfigState, VersionedConfig, VersionedConfigStatus};
use nudge_tests::binary;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::rollout::APP;
use crate::objects::{config, deployment, list, opted_in, python};
use crate::place::succeed;
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "A bad version, eight pods, a probe of default timing, no spec.rollout";
const PODS: usize = 8;
/// 3 failures × 10 s + 1 s for an answer + 6 s.
const WATCHED: u32 = 37;

/// Returns names no time of its own.
fn probe() -> Value {
    json!({"httpGet": {"path": "/healthy", "port": 8080}})
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    // Built before anything is timed.
    binary::kubectl_nudge()?;
    let home = ScenarioNamespace::enabled(suite, "exposure").await?;
    let versions = [("1", json!({"name": "one", "healthy": "yes"})), ("2", json!({"name": "two"}))];
    home.apply(&config("fleet", &versions, &json!({})))?;
    let mut container = python(&home, APP);
    container["readinessProbe"] = probe();
    let annotations = [("configs", "fleet"), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    home.apply(&list([deployment(&opted_in("fleet", &container, &annotations), i32::try_from(PODS)?)]))?;
    let pods = ready(&home, "fleet", PODS).await?;
    let mut logs = Vec::new();
    for pod in &pods {
        let log = home.follow(pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "runs one").await?;
        logs.push(log);
    }
    home.wait_until_current("fleet", "1").await?;

    home.activate("fleet", "2").await?;
    let activated = OffsetDateTime::now_utc();
    let status =
        wait_for_status(&home, "fleet", "the first step is watched", |status| status.rollout.watch.is_some()).await?;
    let watch = status.rollout.watch.context("nothing is watched")?;
    ensure!(watch.seconds == WATCHED, "{watch:?}");
    ensure!(watch.reason.contains("the readiness probe of container app needs 3 x 10 s + 1 s"), "{watch:?}");
    let shown = nudge(&home, &["status", "fleet"])?;
    let line = format!("{WATCHED} s for each step, because {}", watch.reason);
    ensure!(shown.contains(&line), "kubectl nudge status does not say why: {shown}");
    ensure!(shown.contains(&format!("0 of 1 pod on 2 were harmed; of {} on 1 none", PODS - 1)), "{shown}");

    let (mut unready, mut harmed) = (None, None);
    let (of_fleet, configs) = (ListParams::default().labels("app=fleet"), home.space.api::<VersionedConfig>());
    let failed = eventually(LONG_WAIT_TIMEOUT, "the version has failed", async || {
        let listed_pods = home.space.api::<Pod>().list(&of_fleet).await.ok()?.items;
        let status = configs.get("fleet").await.ok()?.status?;
        let now = OffsetDateTime::now_utc();
        if !listed_pods.iter().all(is_ready) {
            unready.get_or_insert(now);
        }
        if status.conditions.iter().any(|condition| condition.reason == "Inconclusive") {
            harmed.get_or_insert(now);
        }
        (status.state() == ConfigState::Failed).then_some(status)
    })
    .await?;
    let back = OffsetDateTime::now_utc();
    let (unready, harmed) = (unready.context("no pod was unready")?, harmed.context("nothing was waited for")?);
    let failure = failed.rollout.failure.context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == ("2", "PodNotReady"), "{failure:?}");
    ready(&home, "fleet", PODS).await?;
    let all_ready = OffsetDateTime::now_utc();
    let mut exposed = Vec::new();
    for (pod, log) in pods.iter().zip(&logs) {
        if let Some(line) = log.lines().into_iter().find(|line| line.text.contains("runs two")) {
            log.line(line.at, WAIT_TIMEOUT, "runs one").await.context("it does not come back")?;
            exposed.push((pod.name_any(), line.at));
        }
        assert_untouched(&home, pod).await?;
    }
    ensure!(exposed.len() == 1, "{} of {PODS} pods had the version: {exposed:?}", exposed.len());
    let description = format!("1 of 1 pod on 2 became unready (first: {}, ", exposed[0].0);
    ensure!(failure.message.starts_with(&description), "{failure:?} does not name {exposed:?}");
    let others = format!("of {} on 1 none", PODS - 1);
    ensure!(failure.message.ends_with(&others), "{failure:?}");

    let row = |what: &str, to: OffsetDateTime, pods: usize| -> Result<()> {
        let after = seconds(Duration::try_from(to - activated).unwrap_or_default());
        suite.report.row(TITLE, &[what.to_owned(), after, pods.to_string()]);
        Ok(())
    };
    row("has the bad version", exposed[0].1, 1)?;
    row("its probe has failed three times", unready, 1)?;
    row("it was unready for 3 s, which is harm", harmed, 1)?;
    row("none of the others was: all run the one before", back, PODS)?;
    row("all are Ready again", all_ready, PODS)?;
    Ok(())
}

/// Waits until this many pods of the label are Ready and none is terminating, and returns them.
pub(super) async fn ready(home: &ScenarioNamespace<'_>, app: &str, count: usize) -> Result<Vec<Pod>> {
    let pods = home.space.api::<Pod>();
    eventually(LONG_WAIT_TIMEOUT, &format!("{count} pods are ready"), async || {
        let mut listed_pods = pods.list(&ListParams::default().labels(&format!("app={app}"))).await.ok()?.items;
        listed_pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        (listed_pods.len() == count && listed_pods.iter().all(is_ready)).then_some(listed_pods)
    })
    .await
}

/// Waits until the status of the config is as expected, and returns it.
pub(super) async fn wait_for_status(
    home: &ScenarioNamespace<'_>,
    config: &str,
    what: &str,
    is: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<VersionedConfigStatus> {
    let configs = home.space.api::<VersionedConfig>();
    eventually(LONG_WAIT_TIMEOUT, what, async || configs.get(config).await.ok()?.status.filter(&is)).await
}

/// Runs a command of kubectl nudge in this namespace.
pub(super) fn nudge(home: &ScenarioNamespace<'_>, arguments: &[&str]) -> Result<String> {
    let mut command = home.place.command("sh");
    let program = binary::kubectl_nudge()?;
    command.args(["-ec", r#"exec "$0" "$@""#]).arg(program).args(["-n", &home.space.name]).args(arguments);
    succeed(&mut command)
}
