//! When a restart has come up, when it has failed, and when neither is to be said of the version.

use std::collections::HashMap;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::*;

/// Deadline of the StatefulSet's restart, and how long each of its three pods takes, in seconds.
const DEADLINE_SECONDS: u64 = 15;
const SLOW_SECONDS: i64 = 6;

#[tokio::test]
async fn a_stateful_set_takes_longer_than_the_deadline_while_it_progresses() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let rollout = json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0, "progressDeadlineSeconds": DEADLINE_SECONDS});
    let space = shop(installation, "slow", json!({"rollout": rollout})).await?;
    bind(&space, "nudge-restart").await?;
    let spec = json!({"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db")});
    space.create_object::<StatefulSet>(json!({"metadata": {"name": "db"}, "spec": spec})).await?;
    let age = |pod: &Pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        Timestamp::now().duration_since(created).as_secs()
    };
    let _kubelet =
        Kubelet::start(&space, move |pod| !pod.annotations().contains_key(DIGEST) || age(pod) >= SLOW_SECONDS);
    let sets = space.api::<StatefulSet>();
    eventually(WAIT_TIMEOUT, "three pods are Ready", async || {
        (sets.get("db").await.ok()?.status?.ready_replicas == Some(3)).then_some(())
    })
    .await?;
    let began = Instant::now();
    create_and_request(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    ensure!(restarted_condition(&status).is_some_and(|(state, ..)| state == "True"), "{status:#?}");
    ensure!(began.elapsed().as_secs() > DEADLINE_SECONDS, "it was too fast to show anything");
    Ok(())
}

#[tokio::test]
async fn a_template_that_somebody_changes_meanwhile_is_not_held_against_the_version() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "changed", json!({})).await?;
    bind(&space, "nudge-restart").await?;
    deployment(&space, "web", json!({"progressDeadlineSeconds": 8})).await?;
    // No new pod comes up.
    let _kubelet = Kubelet::start(&space, |pod| !pod.annotations().contains_key(DIGEST));
    wait_until_available(&space, &["web"]).await?;
    create_and_request(&space, "2").await?;
    eventually(WAIT_TIMEOUT, "it is being restarted", async || digest(&space, "web").await.ok().flatten()).await?;
    let theirs = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "broken"}]}}}});
    let params = PatchParams::default();
    space.api::<Deployment>().patch("web", &params, &Patch::Strategic(theirs)).await?;
    let status = wait_until_current(&space, "2").await?;
    let (_, reason, message) = restarted_condition(&status).context("no condition Restarted")?;
    ensure!(reason == "TemplateChanged" && message.contains("Deployment/web"), "{reason}: {message}");
    ensure!(status.rollout.failure.is_none(), "{status:#?}");
    Ok(())
}

/// Runs pods; those with the first digest that it sees crash again and again.
fn crashing_kubelet(space: &TestNamespace) -> Kubelet {
    let space = space.clone();
    Kubelet(tokio::spawn(async move {
        let (mut turns, mut seen) = (tokio::time::interval(Duration::from_millis(500)), HashMap::new());
        let mut bad: Option<String> = None;
        loop {
            turns.tick().await;
            let Ok(pods) = space.api::<Pod>().list(&ListParams::default()).await else { continue };
            for pod in pods.items {
                let digest = pod.annotations().get(DIGEST);
                bad = bad.or_else(|| digest.cloned());
                let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
                // It may be gone by now.
                if !runs {
                    let _ = space.run(&pod).await;
                } else if digest.is_some() && digest == bad.as_ref() {
                    let turn: &mut i32 = seen.entry(pod.uid()).or_default();
                    *turn += 1;
                    let _ = crash(&space, &pod, *turn).await;
                }
            }
        }
    }))
}

/// Writes that the container has just ended, or was just started again.
async fn crash(space: &TestNamespace, pod: &Pod, turn: i32) -> Result<()> {
    let mut status = serde_json::to_value(&pod.status)?;
    let ready = if turn % 2 == 0 { "True" } else { "False" };
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
            condition["status"] = ready.into();
        }
    }
    status["containerStatuses"][0]["restartCount"] = (turn / 2).into();
    let patch =
        json!({"status": {"conditions": status["conditions"], "containerStatuses": status["containerStatuses"]}});
    space.api::<Pod>().patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn pods_that_crash_after_their_start_fail_without_a_probe_too() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let rollout =
        json!({"steps": [{"pods": "100%"}], "minReadySeconds": 10, "bakeSeconds": 0, "progressDeadlineSeconds": 600});
    let space = shop(installation, "crash", json!({"rollout": rollout})).await?;
    bind(&space, "nudge-restart").await?;
    deployment(&space, "web", json!({})).await?;
    let _kubelet = crashing_kubelet(&space);
    wait_until_available(&space, &["web"]).await?;
    create_and_request(&space, "2").await?;
    let status =
        wait_for_status(&space, "version 2 has failed", |status| status.state() == ConfigState::Failed).await?;
    let failure = status.rollout.failure.context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == ("2", "RestartFailed"), "{failure:?}");
    ensure!(failure.message.contains("Deployment/web"), "{}", failure.message);
    wait_until_available(&space, &["web"]).await
}

/// Runs pods and stands for their agents, which have what is assigned to them at once.
pub(super) fn kubelet_with_agents(space: &TestNamespace) -> Kubelet {
    let space = space.clone();
    Kubelet(tokio::spawn(async move {
        let (mut turns, mut said) = (tokio::time::interval(Duration::from_millis(100)), HashMap::new());
        loop {
            turns.tick().await;
            let Ok(config) = space.api::<VersionedConfig>().get("shop").await else { continue };
            let status = config.status.unwrap_or_default();
            let Some(version) = status.target_version.or(status.current_version) else { continue };
            let Ok(pods) = space.api::<Pod>().list(&ListParams::default()).await else { continue };
            for pod in pods.items {
                let known = said.insert(pod.uid(), version.clone());
                // It may be gone by now.
                if known.as_ref() != Some(&version) {
                    let _ = report_version(&space, &pod, &version).await;
                }
            }
        }
    }))
}

async fn report_version(space: &TestNamespace, pod: &Pod, version: &str) -> Result<()> {
    let running = space.run(pod).await?;
    let mut conditions = serde_json::to_value(running.status.context("a status")?.conditions)?;
    let condition = json!({"type": "nudge.dev/ConfigCurrent", "status": "True", "reason": "Applied", "message": format!("shop={version}")});
    conditions.as_array_mut().context("conditions")?.push(condition);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    space.api::<Pod>().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}
