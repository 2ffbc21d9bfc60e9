//! A Deployment of six is moved in steps. A version that makes the application unready, as the kubelet's own probe
//! finds, goes no further than the first step, and comes back by itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use nudge_api::{ConfigState, VersionedConfig};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::log::Log;
use crate::objects::{config, deployment, list, opted_in, python};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "A Deployment of six, a third at a time";
const PODS: i32 = 6;
/// A third of them.
const STEP: usize = 2;
/// Seconds for which pods are watched at least before others are notified.
const WATCHED: i64 = 2;

/// Serves its files, and says when it is notified. The probe requests one that the bad version does not have.
pub(super) const APP: &str = r#"
import functools, http.server, signal

def report(*_):
    print("runs", open("/config/name").read(), flush=True)

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("", 8080), functools.partial(Quiet, directory="/config"))
signal.signal(signal.SIGUSR1, report)
report()
server.serve_forever()
"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "rollout").await?;
    let good = |name: &str| json!({"name": name, "healthy": "yes"});
    let versions = [("1", good("one")), ("2", good("two")), ("3", json!({"name": "three"}))];
    let rollout = json!({"steps": [{"pods": STEP}, {"pods": 2 * STEP}], "minReadySeconds": WATCHED, "bakeSeconds": 1});
    home.apply(&config("flock", &versions, &rollout))?;
    let mut container = python(&home, APP);
    container["readinessProbe"] = probe();
    let annotations = [("configs", "flock"), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    home.apply(&list([deployment(&opted_in("flock", &container, &annotations), PODS)]))?;
    let pods = ready(&home).await?;
    let mut logs = Vec::new();
    for pod in &pods {
        let log = home.follow(pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "runs one").await?;
        logs.push(log);
    }
    suite.report.row(TITLE, &["", "after", "pods"].map(str::to_owned));
    steps(suite, &home, &logs).await?;
    comes_back(suite, &home, &pods, &logs).await?;
    for pod in &pods {
        assert_untouched(&home, pod).await?;
    }
    Ok(())
}

/// Requests what a bad version does not have, which is answered at once; a machine that is busy is no bad version.
pub(super) fn probe() -> Value {
    json!({"httpGet": {"path": "/healthy", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 4})
}

/// Waits until all pods are ready, and returns them.
pub(super) async fn ready(home: &ScenarioNamespace<'_>) -> Result<Vec<Pod>> {
    let pods = home.space.api::<Pod>();
    eventually(LONG_WAIT_TIMEOUT, "all pods are ready", async || {
        let listed_pods = pods.list(&ListParams::default()).await.ok()?.items;
        (i32::try_from(listed_pods.len()).ok()? == PODS && listed_pods.iter().all(is_ready)).then_some(listed_pods)
    })
    .await
}

/// A good version reaches all, never more than a step at a time.
async fn steps(suite: &Suite, home: &ScenarioNamespace<'_>, logs: &[Log]) -> Result<()> {
    home.activate("flock", "2").await?;
    let activated = OffsetDateTime::now_utc();
    let mut notified = Vec::new();
    for log in logs {
        notified.push(log.line(OffsetDateTime::UNIX_EPOCH, LONG_WAIT_TIMEOUT, "runs two").await?.at);
    }
    home.wait_until_current("flock", "2").await?;
    let proven = OffsetDateTime::now_utc();
    notified.sort();
    for pair in notified.windows(STEP + 1) {
        let between = pair[STEP] - pair[0];
        ensure!(
            between >= time::Duration::seconds(WATCHED),
            "more than {STEP} pods were notified within {WATCHED} s: {notified:?}"
        );
    }
    for (number, step) in notified.chunks(STEP).enumerate() {
        let after = seconds(Duration::try_from(step[step.len() - 1] - activated).unwrap_or_default());
        suite.report.row(TITLE, &[format!("step {} runs the version", number + 1), after, step.len().to_string()]);
    }
    let after = seconds(Duration::try_from(proven - activated)?);
    suite.report.row(TITLE, &["the version is current".to_owned(), after, PODS.to_string()]);
    Ok(())
}

/// A bad version reaches one step, and leaves it.
async fn comes_back(suite: &Suite, home: &ScenarioNamespace<'_>, before: &[Pod], logs: &[Log]) -> Result<()> {
    // Long enough for any kubelet to notice before the second step goes out.
    let patient = Patch::Merge(json!({"spec": {"rollout": {"minReadySeconds": 20}}}));
    let configs = home.space.api::<VersionedConfig>();
    configs.patch("flock", &PatchParams::default(), &patient).await?;
    home.wait_until_current("flock", "2").await?;
    home.activate("flock", "3").await?;
    let activated = OffsetDateTime::now_utc();
    let pods = home.space.api::<Pod>();
    eventually(WAIT_TIMEOUT, "a pod is not ready", async || {
        let listed_pods = pods.list(&ListParams::default()).await.ok()?.items;
        listed_pods.iter().any(|pod| !is_ready(pod)).then_some(())
    })
    .await?;
    let unready = OffsetDateTime::now_utc();
    let status = eventually(LONG_WAIT_TIMEOUT, "the version has failed", async || {
        configs.get("flock").await.ok()?.status.filter(|status| status.state() == ConfigState::Failed)
    })
    .await?;
    ready(home).await?;
    let whole = OffsetDateTime::now_utc();

    let mut notified: Vec<(OffsetDateTime, OffsetDateTime)> = Vec::new();
    let mut names = Vec::new();
    for (pod, log) in before.iter().zip(logs) {
        let lines = log.lines();
        let Some(bad) = lines.iter().find(|line| line.text.contains("runs three")) else { continue };
        let back = log.line(bad.at, WAIT_TIMEOUT, "runs two").await.context("it does not come back")?;
        notified.push((bad.at, back.at));
        names.push(pod.name_any());
    }
    ensure!((1..=STEP).contains(&notified.len()), "{} pods were notified: {names:?}", notified.len());
    ensure!(status.current_version.as_deref() == Some("2") && status.target_version.is_none(), "{status:#?}");
    let failure = status.rollout.failure.context("status.rollout names no failure")?;
    ensure!(failure.version == "3" && failure.reason.as_str() == "PodNotReady", "{failure:?}");
    ensure!(names.iter().any(|name| failure.message.contains(name)), "{failure:?} names none of {names:?}");
    for reason in ["RollingBack", "Failed"] {
        eventually(WAIT_TIMEOUT, &format!("an Event {reason} names the pod"), async || {
            let events = home.space.api::<Event>().list(&ListParams::default()).await.ok()?.items;
            let of_config = |event: &Event| event.involved_object.name.as_deref() == Some("flock");
            let says = |event: &Event| {
                let message = event.message.clone().unwrap_or_default();
                event.reason.as_deref() == Some(reason) && names.iter().any(|name| message.contains(name))
            };
            events.iter().any(|event| of_config(event) && says(event)).then_some(())
        })
        .await?;
    }

    let first = notified.iter().map(|(bad, _)| *bad).min().context("nobody was notified")?;
    let last = notified.iter().map(|(_, back)| *back).max().context("nobody came back")?;
    let count = notified.len().to_string();
    let row = |what: &str, from: OffsetDateTime, to: OffsetDateTime, pods: &str| {
        let after = seconds(Duration::try_from(to - from).unwrap_or_default());
        suite.report.row(TITLE, &[what.to_owned(), after, pods.to_owned()]);
    };
    row("bad version: the first pod runs it", activated, first, &count);
    row("bad version: the probe has failed", activated, unready, "");
    row("bad version: all run the one before", activated, last, &count);
    row("bad version: all are ready again", activated, whole, &PODS.to_string());
    row("from not ready to all ready again", unready, whole, "");
    Ok(())
}
