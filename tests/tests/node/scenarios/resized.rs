//! A pod with a version on trial is resized in place, and its container is restarted for that: the API ordered it, and
//! the version is not blamed.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use nudge_api::VersionedConfigStatus;
use nudge_tests::{eventually, tools};
use serde_json::json;

use super::exposure::{ready, wait_for_status};
use crate::install;
use crate::objects::{config, deployment, list, opted_in, shell};
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, containers};
use crate::suite::Suite;

const PODS: usize = 3;
/// The first server that resizes without being asked to (KEP-1287).
const SERVER: u32 = 33;

/// Says what it has, at its start and when it is notified.
const APP: &str = r#"
    says() { echo "has $(cat /config/mode)"; }
    trap says USR1; trap 'exit 0' TERM; says
    while :; do sleep 0.1; done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "resized").await?;
    let server = install::minor(&home.place.client().await?).await?;
    if server < SERVER {
        tools::skipped(&format!("no resize in place: the server is 1.{server}, and it takes 1.{SERVER}"));
        return Ok(());
    }
    let versions = [("1", json!({"mode": "one"})), ("2", json!({"mode": "two"}))];
    // One pod is watched for long enough to be resized.
    let rollout = json!({"steps": [{"pods": 1}, {"pods": "100%"}], "minReadySeconds": 20, "bakeSeconds": 0});
    home.apply(&config("resized", &versions, &rollout))?;
    let mut app = shell(&home, APP);
    app["resources"] = json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "200m"}});
    app["resizePolicy"] = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    app["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let annotations = [("configs", "resized"), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    let template = opted_in("resized", &app, &annotations);
    home.apply(&list([deployment(&template, i32::try_from(PODS)?)]))?;
    let before = ready(&home, "resized", PODS).await?;
    home.wait_until_current("resized", "1").await?;
    let all_ready = |status: &VersionedConfigStatus| usize::try_from(status.pods.ready) == Ok(PODS);
    wait_for_status(&home, "resized", "all pods are seen to be ready", all_ready).await?;

    home.activate("resized", "2").await?;
    let on_trial = eventually(LONG_WAIT_TIMEOUT, "a pod has version 2", async || {
        before.iter().find(|pod| {
            let log = home.kubectl(&["logs", &pod.name_any(), "-c", "app"]);
            log.is_ok_and(|log| log.contains("has two"))
        })
    })
    .await?;
    let resize = json!({"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "300m"}}}]}});
    home.kubectl(&["patch", "pod", &on_trial.name_any(), "--subresource=resize", "-p", &resize.to_string()])?;
    let restarts = |pod: &Pod| containers(pod).into_iter().find(|(name, ..)| name == "app").map(|(.., count)| count);
    let pods = home.space.api::<Pod>();
    let restarted = async || pods.get(&on_trial.name_any()).await.ok().filter(|pod| restarts(pod) == Some(1)).map(drop);
    eventually(LONG_WAIT_TIMEOUT, "its container is restarted", restarted).await?;
    let status = wait_for_status(&home, "resized", "version 2 is current, or has failed", |status| {
        status.current_version.as_deref() == Some("2") || status.rollout.failure.is_some()
    })
    .await?;
    ensure!(status.rollout.failure.is_none(), "{status:#?}");
    let after = ready(&home, "resized", PODS).await?;
    ensure!(after.iter().all(|pod| before.iter().any(|old| old.uid() == pod.uid())), "a pod is another one");
    let counts: Vec<i32> = after.iter().map(|pod| restarts(pod).context("no container")).collect::<Result<_>>()?;
    ensure!(counts.iter().sum::<i32>() == 1, "{counts:?}");
    Ok(())
}
