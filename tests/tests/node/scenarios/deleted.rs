//! A pod is deleted while it is notified: the rollout does not wait for it, and its successor gets the version as well.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use nudge_api::{RolloutStage, VersionedConfig};
use serde_json::json;
use time::OffsetDateTime;

use crate::objects::{config, deployment, list, opted_in, shell};
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const PODS: i32 = 3;

/// Fetches what it is notified of, which acknowledges it, except while `/tmp/slow` is there.
const APP: &str = r#"
    notified=yes
    trap 'notified=yes; echo notified' USR1
    while :; do
        if [ "$notified" ] && [ ! -e /tmp/slow ]; then notified=; echo "has $(nudge-agent get greeting)"; fi
        sleep 0.2
    done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "deleted").await?;
    // Far longer than this test waits: what is held up is not excused.
    let rollout = json!({"steps": [{"pods": 1}], "minReadySeconds": 0, "bakeSeconds": 0, "ackTimeoutSeconds": 1800, "progressDeadlineSeconds": 3600});
    let versions = [("1", json!({"greeting": "one"})), ("2", json!({"greeting": "two"}))];
    home.apply(&config("herd", &versions, &rollout))?;
    let annotations = [("configs", "herd"), ("notify", "SIGUSR1"), ("ack", "fetched")];
    home.apply(&list([deployment(&opted_in("herd", &shell(&home, APP), &annotations), PODS)]))?;
    let pods = home.space.api::<Pod>();
    let before = eventually(LONG_WAIT_TIMEOUT, "all pods are ready", async || {
        let listed_pods = pods.list(&ListParams::default()).await.ok()?.items;
        (i32::try_from(listed_pods.len()).ok()? == PODS && listed_pods.iter().all(is_ready)).then_some(listed_pods)
    })
    .await?;
    let mut logs = Vec::new();
    for pod in &before {
        let log = home.follow(pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has one").await?;
        home.kubectl(&["exec", &pod.name_any(), "-c", "app", "--", "touch", "/tmp/slow"])?;
        logs.push(log);
    }
    let configs = home.space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "the agents of all pods have reported", async || {
        let status = configs.get("herd").await.ok()?.status?;
        (u32::try_from(PODS) == Ok(status.pods.on_target)).then_some(())
    })
    .await?;
    home.activate("herd", "2").await?;
    let notified = async || logs.iter().position(|log| log.lines().iter().any(|line| line.text == "notified"));
    let first = eventually(WAIT_TIMEOUT, "a pod is notified", notified).await?;
    for (index, pod) in before.iter().enumerate() {
        if index != first {
            home.kubectl(&["exec", &pod.name_any(), "-c", "app", "--", "rm", "/tmp/slow"])?;
        }
    }
    // The rollout stands still on this pod.
    let status = configs.get("herd").await?.status.context("no status")?;
    ensure!(status.rollout.stage == Some(RolloutStage::Moving), "{status:#?}");
    let others = || logs.iter().enumerate().filter(|(index, _)| *index != first);
    ensure!(
        others().all(|(_, log)| log.lines().iter().all(|line| line.text != "notified")),
        "others were notified as well"
    );
    pods.delete(&before[first].name_any(), &DeleteParams::default()).await?;

    home.wait_until_current("herd", "2").await?;
    for (index, log) in others() {
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has two").await?;
        assert_untouched(&home, &before[index]).await?;
    }
    // Its successor was born with one of the two, and has the second by now or is notified of it.
    let is_known = |pod: &Pod| before.iter().any(|other| other.uid() == pod.uid());
    let successor = eventually(LONG_WAIT_TIMEOUT, "the successor is ready", async || {
        let all = pods.list(&ListParams::default()).await.ok()?.items;
        all.into_iter().find(|pod| !is_known(pod) && is_ready(pod))
    })
    .await?;
    home.follow(&successor).await?.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has two").await?;
    let status = configs.get("herd").await?.status.context("no status")?;
    ensure!(status.rollout.failure.is_none(), "the version is blamed: {status:#?}");
    Ok(())
}
