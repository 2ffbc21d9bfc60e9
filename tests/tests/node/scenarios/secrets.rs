//! A Secret is rotated: the application has the new value without a restart, nothing of ours writes it down, and who
//! got it is noted once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt as _};
use nudge_tests::cluster::installation::{NAMESPACE, at_once};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::objects::{opted_in, pod, secret_config, shell};
use crate::report::seconds;
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "A Secret rotated, from spec.version to the application";
/// Versions, each with a value that is nowhere else.
const VERSIONS: [(&str, &str); 3] = [("1", "first-Zk3xQ8vT1m"), ("2", "second-pW7nJ4hR9c"), ("3", "third-bY6sL2dG5f")];
/// The values of the versions in base64.
const ENCODED: [&str; 3] = ["Zmlyc3QtWmszeFE4dlQxbQ", "c2Vjb25kLXBXN25KNGhSOWM", "dGhpcmQtYlk2c0wyZEc1Zg"];

/// Says which of the values it has, by its length and beginning, and never the value.
const APP: &str = r#"
    report() { value=$(nudge-agent get password) && echo "has ${value%%-*} of ${#value}"; }
    trap report USR1
    report
    while :; do sleep 3600 & wait $!; done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "secrets").await?;
    home.kubectl(&["apply", "-k", "deploy/namespace/secrets"])?;
    let versions = VERSIONS.map(|(version, value)| (version, json!({"password": value})));
    home.apply(&secret_config("keys", &versions, &at_once()))?;
    home.wait_until_current("keys", "1").await?;
    let annotations = [("configs", "keys"), ("notify", "SIGUSR1")];
    home.apply(&pod(opted_in("keys", &shell(&home, APP), &annotations)).to_string())?;
    let pod = home.ready_pod("app=keys").await?;
    let log = home.follow(&pod).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has first of 16").await?;
    for (version, text) in [("2", "has second of 17"), ("3", "has third of 16")] {
        home.activate("keys", version).await?;
        let activated = OffsetDateTime::now_utc();
        let line = log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, text).await?;
        let time = Duration::try_from(line.at - activated).unwrap_or_default();
        suite.report.row(TITLE, &[format!("version {version}"), seconds(time)]);
        home.wait_until_current("keys", version).await?;
    }
    assert_untouched(&home, &pod).await?;
    assert_audited(&home, &pod).await?;
    nowhere(&home, &pod).await
}

/// Returns what the control plane's replicas have logged.
async fn control_plane(home: &ScenarioNamespace<'_>) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(home.space.client.clone(), NAMESPACE);
    // A replica of a component that somebody else installs may have none yet.
    eventually(WAIT_TIMEOUT, "every replica has a log", async || {
        let mut text = String::new();
        for pod in pods.list(&ListParams::default()).await.ok()? {
            text += &pods.logs(&pod.name_any(), &LogParams::default()).await.ok()?;
        }
        Some(text)
    })
    .await
}

/// Fails unless the audit has one line for each version that was rotated to, and names pod, config and part. The first
/// version is mounted into the pod, so the hub may not have had to deliver it.
async fn assert_audited(home: &ScenarioNamespace<'_>, pod: &Pod) -> Result<()> {
    let uid = pod.uid().context("no uid")?;
    // The container runtime may write a log later than the application acts.
    let lines = eventually(WAIT_TIMEOUT, "the audit has the last version", async || {
        let text = control_plane(home).await.ok()?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours: Vec<_> = lines.filter(|line| line["target"] == "audit" && line["pod_uid"] == *uid).collect();
        ours.iter().any(|line| line["version"] == "3").then_some(ours)
    })
    .await?;
    for (version, bounds) in [("1", 0..=1), ("2", 1..=1), ("3", 1..=1)] {
        let of: Vec<_> = lines.iter().filter(|line| line["version"] == version).collect();
        ensure!(bounds.contains(&of.len()), "version {version} has {} lines: {lines:#?}", of.len());
        for line in of {
            let part = format!("Secret/keys-{version}");
            ensure!(line["pod"] == "keys" && line["config"] == "keys" && line["secrets"] == *part, "{line}");
            ensure!(line["namespace"] == *home.space.name, "{line}");
        }
    }
    Ok(())
}

/// No value is in any log of ours, in an Event, in the pod or in the status of the config.
async fn nowhere(home: &ScenarioNamespace<'_>, pod: &Pod) -> Result<()> {
    let agent = LogParams { container: Some("nudge-agent".to_owned()), ..LogParams::default() };
    let pods = home.space.api::<Pod>();
    let events = home.space.api::<Event>().list(&ListParams::default()).await?;
    let places = [
        ("the control plane's logs", control_plane(home).await?),
        ("the agent's log", pods.logs(&pod.name_any(), &agent).await?),
        ("Events", serde_json::to_string(&events.items)?),
        ("the pod", serde_json::to_string(&pods.get(&pod.name_any()).await?)?),
        ("the config", home.kubectl(&["get", "vcfg", "keys", "-o", "json"])?),
    ];
    for (place, text) in places {
        ensure!(text.contains("keys"), "{place}: nothing of this config is there, so nothing is proven");
        let values = VERSIONS.iter().map(|(_, value)| *value).chain(ENCODED);
        let found: Vec<_> = values.filter(|value| text.contains(value)).collect();
        ensure!(found.is_empty(), "{place}: {} values are there", found.len());
    }
    Ok(())
}
