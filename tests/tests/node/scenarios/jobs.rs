//! A Job with an agent ends when its own container has, and waits for a config without a failure; where the cluster has
//! no native sidecars it is refused with a message.

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_tests::cluster::installation::at_once;
use serde_json::json;

use crate::install;
use crate::objects::{config, list, opted_in, shell};
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT};
use crate::suite::Suite;
use nudge_tests::eventually;

/// Kubernetes from which on the agent is a native sidecar.
const SIDECARS: u32 = 29;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "jobs").await?;
    home.apply(&config("work", &[("1", json!({"greeting": "hello"}))], &at_once()))?;
    home.wait_until_current("work", "1").await?;
    let container = shell(&home, "nudge-agent get greeting");
    let mut template = opted_in("work", &container, &[("configs", "work")]);
    template["spec"]["restartPolicy"] = "Never".into();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {"backoffLimit": 0, "template": template},
    });
    home.apply(&list([job]))?;
    if install::minor(&home.space.client).await? >= SIDECARS {
        test_end(&home).await?;
        test_wait(&home).await
    } else {
        test_refusal(&home).await
    }
}

async fn test_end(home: &ScenarioNamespace<'_>) -> Result<()> {
    let jobs = home.space.api::<Job>();
    eventually(WAIT_TIMEOUT, "the Job is complete", async || {
        (jobs.get("work").await.ok()?.status?.succeeded == Some(1)).then_some(())
    })
    .await?;
    let pods = home.space.api::<Pod>().list(&ListParams::default()).await?.items;
    ensure!(pods.len() == 1, "the Job has {} pods", pods.len());
    let message = home.kubectl(&["logs", &pods[0].name_any(), "-c", "app"])?;
    ensure!(message.trim() == "hello", "the application has read {message:?}");
    Ok(())
}

/// Each restart of a container would use up the Job's `backoffLimit`.
async fn test_wait(home: &ScenarioNamespace<'_>) -> Result<()> {
    let mut template = opted_in("late", &shell(home, "nudge-agent get greeting"), &[("configs", "late")]);
    template["spec"]["restartPolicy"] = "OnFailure".into();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "late"},
        "spec": {"backoffLimit": 0, "template": template},
    });
    home.apply(&list([job]))?;
    eventually(WAIT_TIMEOUT, "an Event says what the pod waits for", async || {
        let events = home.space.api::<Event>().list(&ListParams::default()).await.ok()?.items;
        let waits = |event: &Event| {
            event.reason.as_deref() == Some("Unhealthy")
                && event.message.as_deref().is_some_and(|message| message.contains("config late"))
        };
        events.iter().any(waits).then_some(())
    })
    .await?;
    home.apply(&config("late", &[("1", json!({"greeting": "hello"}))], &at_once()))?;
    let status = eventually(WAIT_TIMEOUT, "the Job is over", async || {
        let status = home.space.api::<Job>().get("late").await.ok()?.status?;
        (status.succeeded == Some(1) || status.failed.is_some_and(|failed| failed > 0)).then_some(status)
    })
    .await?;
    ensure!(status.succeeded == Some(1) && status.failed.unwrap_or(0) == 0, "{status:?}");
    Ok(())
}

async fn test_refusal(home: &ScenarioNamespace<'_>) -> Result<()> {
    let listed_events = eventually(WAIT_TIMEOUT, "the Job's Event says why it has no pod", async || {
        let events = home.space.api::<Event>().list(&ListParams::default()).await.ok()?.items;
        let of_job = |event: &Event| event.involved_object.kind.as_deref() == Some("Job");
        let failed = events.into_iter().find(|event| of_job(event) && event.reason.as_deref() == Some("FailedCreate"));
        failed?.message
    })
    .await?;
    let message = "this pod belongs to a Job, which would never complete while the agent runs: this cluster has no native sidecars (Kubernetes 1.29)";
    ensure!(
        listed_events.contains(message) && listed_events.contains("nudge.dev/inject"),
        "the Job has no such Event: {listed_events}"
    );
    let pods = home.space.api::<Pod>().list(&ListParams::default()).await?.items;
    ensure!(pods.is_empty(), "the Job has a pod");
    Ok(())
}
