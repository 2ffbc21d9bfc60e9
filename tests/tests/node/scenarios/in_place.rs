//! An application that reads only its environment, restarted in place (`nudge.dev/notify: in-place`): three versions
//! into the same pods with the same addresses, beside a rolling restart of the same Deployment. A version that a
//! variable can't express ends nothing. The restarts that are commanded harm nobody and make nobody restless; a crash
//! after one does, and the way back is another restart.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::LogParams;
use nudge_api::{ConfigState, VersionedConfigStatus};
use nudge_tests::cluster::installation::at_once;
use nudge_tests::tools;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::exposure::{nudge, ready, wait_for_status};
use crate::install;
use crate::objects::{config, deployment, list, opted_in, shell};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, containers};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Three pods that read only their environment, from spec.version";
const PODS: usize = 3;
/// The first server that can.
const SERVER: u32 = 36;

/// Says what its environment has, and crashes soon with one greeting.
const APP: &str = r#"
    trap 'exit 0' TERM
    echo "has $GREETING $LIVES"
    [ "$GREETING" = crash ] && sleep 1 && exit 1
    while :; do sleep 0.1; done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "in-place").await?;
    let version =
        |greeting: &str, lives: &str| json!({"GREETING": greeting, "LIVES": lives, "other": "it's no variable"});
    let versions = [
        ("1", version("hello", "3")),
        ("2", version("welcome back", "5")),
        ("3", version("good\nmorning", "7")),
        ("quote", version("it's", "9")),
        ("crash", version("crash", "0")),
    ];
    home.apply(&config("greetings", &versions, &at_once()))?;
    let annotations = [("configs", "greetings"), ("notify", "in-place"), ("env.app", "GREETING, LIVES")];
    let template = opted_in("greetings", &shell(&home, APP), &annotations);
    let server = install::minor(&home.place.client().await?).await?;
    if server < SERVER {
        tools::skipped(&format!("no restart in place: the server is 1.{server}, and it takes 1.{SERVER}"));
        return assert_refused(&home, &template);
    }
    home.apply(&list([deployment(&template, i32::try_from(PODS)?)]))?;
    let before = ready(&home, "greetings", PODS).await?;
    home.wait_until_current("greetings", "1").await?;
    for pod in &before {
        first_log_time(&home, pod, OffsetDateTime::UNIX_EPOCH, "has hello 3").await?;
    }

    for (version, says) in [("2", "has welcome back 5"), ("3", "morning 7"), ("1", "has hello 3")] {
        let activated = OffsetDateTime::now_utc();
        home.activate("greetings", version).await?;
        let mut durations = Vec::new();
        for pod in &before {
            durations.push(first_log_time(&home, pod, activated, says).await? - activated);
        }
        home.wait_until_current("greetings", version).await?;
        assert_same_pods(&home, "greetings", &before).await?;
        durations.sort();
        let all =
            durations.into_iter().map(|time| Ok(seconds(Duration::try_from(time)?))).collect::<Result<Vec<_>>>()?;
        suite.report.row(TITLE, &[format!("restarted in place with version {version}"), all.join(", ")]);
    }

    // What can't be a variable ends nothing.
    let untouched = ready(&home, "greetings", PODS).await?;
    home.activate("greetings", "quote").await?;
    let failure = wait_for_failure(&home, "quote").await?.rollout.failure.context("no failure")?;
    ensure!(failure.reason.as_str() == "CantApply", "{failure:?}");
    let text = nudge(&home, &["status", "greetings"])?;
    ensure!(text.contains("its value holds a single quote") && !text.contains("it's"), "{text}");
    let now = ready(&home, "greetings", PODS).await?;
    let all = |pods: &[Pod]| pods.iter().map(containers).collect::<Vec<_>>();
    ensure!(all(&now) == all(&untouched), "{:?}", all(&now));

    // All pods were restarted a moment ago, and yet each can judge.
    let careful =
        json!({"spec": {"version": "crash", "rollout": {"steps": null, "minReadySeconds": 10, "bakeSeconds": 5}}});
    home.kubectl(&["patch", "vcfg", "greetings", "--type=merge", "-p", &careful.to_string()])?;
    let activated = OffsetDateTime::now_utc();
    let failure = wait_for_failure(&home, "crash").await?.rollout.failure.context("no failure")?;
    let duration = Duration::try_from(OffsetDateTime::now_utc() - activated)?;
    ensure!(failure.reason.as_str() == "ContainerRestarted", "{failure:?}");
    ensure!(failure.message.starts_with("1 of 1 pod on crash"), "{failure:?}");
    suite.report.row(TITLE, &["a version that crashes: back, after one pod".to_owned(), seconds(duration)]);
    assert_same_pods(&home, "greetings", &before).await?;
    for pod in &before {
        first_log_time(&home, pod, OffsetDateTime::UNIX_EPOCH, "has hello 3").await?;
    }

    let began = OffsetDateTime::now_utc();
    home.kubectl(&["rollout", "restart", "deployment/greetings"])?;
    home.kubectl(&["rollout", "status", "deployment/greetings"])?;
    let duration = Duration::try_from(OffsetDateTime::now_utc() - began)?;
    let after = ready(&home, "greetings", PODS).await?;
    ensure!(after.iter().all(|pod| before.iter().all(|old| old.uid() != pod.uid())), "a pod is the same");
    suite.report.row(TITLE, &["beside: a rolling restart, other pods".to_owned(), seconds(duration)]);
    init_containers_run_again(suite, &home).await
}

/// Containers get SIGTERM and two seconds, whatever the pod says, and init containers run again. If one fails with a
/// version, that is harm.
async fn init_containers_run_again(suite: &Suite, home: &ScenarioNamespace<'_>) -> Result<()> {
    let versions = ["1", "2", "3"].map(|version| (version, json!({"GREETING": version, "LIVES": "1"})));
    home.apply(&config("started", &versions, &json!({"minReadySeconds": 3, "bakeSeconds": 0})))?;
    let annotations = [("configs", "started"), ("env.app", "GREETING"), ("mount-path", "/config")];
    let mut template = opted_in("started", &shell(home, APP), &annotations);
    let runs = "n=$(cat /data/runs || echo 0); echo $((n + 1)) > /data/runs; [ $(cat /config/GREETING) != 3 ]";
    let side =
        "trap 'echo TERM >> /data/ended; sleep 4; echo late >> /data/ended; exit 0' TERM; while :; do sleep 0.1; done";
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let container = |name: &str, script: &str| {
        let mut container = shell(home, script);
        (container["name"], container["volumeMounts"]) = (json!(name), mounts.clone());
        container
    };
    let spec = &mut template["spec"];
    spec["terminationGracePeriodSeconds"] = json!(10);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    spec["initContainers"] = json!([container("setup", runs)]);
    spec["containers"].as_array_mut().context("no containers")?.push(container("side", side));
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        let exec = json!({"command": ["true"]});
        container["startupProbe"] = json!({"exec": exec, "periodSeconds": 1, "failureThreshold": 4});
    }
    home.apply(&list([deployment(&template, 2)]))?;
    let before = ready(home, "started", 2).await?;
    // Who isn't known to be ready can't judge.
    let all_ready = |version: &'static str| {
        let is_expected = move |status: &VersionedConfigStatus| {
            status.current_version.as_deref() == Some(version) && status.pods.ready == 2
        };
        wait_for_status(home, "started", "2 pods are seen to be ready", is_expected)
    };
    all_ready("1").await?;
    home.activate("started", "2").await?;
    all_ready("2").await?;
    for pod in &before {
        let read = |file: &str| home.kubectl(&["exec", &pod.name_any(), "-c", "side", "--", "cat", file]);
        let (runs, ended) = (read("/data/runs")?, read("/data/ended")?);
        ensure!((runs.trim(), ended.trim()) == ("2", "TERM"), "{runs} {ended}");
    }
    let activated = OffsetDateTime::now_utc();
    home.activate("started", "3").await?;
    let failure =
        wait_for_status(home, "started", "version 3 has failed", |status| status.state() == ConfigState::Failed)
            .await?;
    let failure = failure.rollout.failure.context("no failure")?;
    ensure!(failure.reason.as_str() == "PodNotReady", "{failure:?}");
    ensure!(failure.message.starts_with("1 of 1 pod on 3"), "{failure:?}");
    let elapsed = Duration::try_from(OffsetDateTime::now_utc() - activated)?;
    suite.report.row(TITLE, &["an init container that fails: back, after one pod".to_owned(), seconds(elapsed)]);
    assert_same_pods(home, "started", &before).await
}

/// Waits until the version has failed, and all pods have left it.
async fn wait_for_failure(home: &ScenarioNamespace<'_>, version: &str) -> Result<VersionedConfigStatus> {
    let failed = |status: &VersionedConfigStatus| {
        let failure = status.rollout.failure.as_ref();
        status.state() == ConfigState::Failed && failure.is_some_and(|failure| failure.version.as_str() == version)
    };
    wait_for_status(home, "greetings", &format!("version {version} has failed"), failed).await
}

/// Returns when the application said this, which it did first after `since`: the log of a container that was restarted
/// in place is gone.
async fn first_log_time(
    home: &ScenarioNamespace<'_>,
    pod: &Pod,
    since: OffsetDateTime,
    text: &str,
) -> Result<OffsetDateTime> {
    let (pods, name) = (home.space.api::<Pod>(), pod.name_any());
    let log = LogParams { container: Some("app".to_owned()), timestamps: true, ..LogParams::default() };
    let find = async || {
        let log = pods.logs(&name, &log).await.ok()?;
        let mut times = log.lines().filter(|line| line.contains(text)).filter_map(|line| line.split_once(' '));
        times.find_map(|(at, _)| OffsetDateTime::parse(at, &Rfc3339).ok().filter(|at| *at >= since))
    };
    eventually(LONG_WAIT_TIMEOUT, &format!("{name} says {text:?}"), find).await
}

/// Fails unless these pods are still there with their addresses, and no others.
async fn assert_same_pods(home: &ScenarioNamespace<'_>, app: &str, before: &[Pod]) -> Result<()> {
    let of = |pods: &[Pod]| -> BTreeMap<_, _> {
        let address = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        pods.iter().map(|pod| (pod.uid(), address(pod))).collect()
    };
    let now = ready(home, app, before.len()).await?;
    ensure!(of(&now) == of(before), "{:?} are not {:?}", of(&now), of(before));
    Ok(())
}

/// A pod is refused with the remedy, where the server can't.
fn assert_refused(home: &ScenarioNamespace<'_>, template: &Value) -> Result<()> {
    let mut pod = template.clone();
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    pod["metadata"]["name"] = json!("greetings");
    let refusal = home.apply(&pod.to_string()).err().context("the pod was admitted")?.to_string();
    for text in ["container app", "nudge.dev/notify: in-place", "Kubernetes 1.36", "nudge.dev/notify: rollout"] {
        ensure!(refusal.contains(text), "{refusal}");
    }
    Ok(())
}
