//! Workloads with an agent whose pods take a version by a restart alone. Here the kubelet stands for the agents, too:
//! each pod runs the version that it is assigned at its creation, and no other version later.

use std::sync::Arc;

use kube::api::DeleteParams;
use nudge_api::RolloutStage;
use parking_lot::Mutex;

use super::*;

/// Returns a template with an agent that gives its pods the config `shop`.
fn with_agent(app: &str) -> Value {
    let annotations = json!({"nudge.dev/inject": "true", "nudge.dev/configs": "shop", "nudge.dev/notify": "rollout"});
    json!({"metadata": {"labels": {"app": app, "nudge.dev/agent": "0.1.0"}, "annotations": annotations}, "spec": {
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]},
            {"name": "app", "image": "test"},
        ],
    }})
}

/// A version of a ConfigMap that is always the same, and a Secret.
async fn version_with_secret(space: &TestNamespace, version: &str, secret: &str) -> Result<()> {
    let meta = |kind: &str, part: &str| {
        json!({
            "name": format!("shop-{version}-{kind}"), "annotations": {"nudge.dev/parts": "2"},
            "labels": {"nudge.dev/config": "shop", "nudge.dev/version": version, "nudge.dev/part": part},
        })
    };
    let open = json!({"metadata": meta("open", "1"), "immutable": true, "data": {"key": "same"}});
    create_part::<ConfigMap>(space, open).await?;
    let secret = json!({"metadata": meta("secret", "2"), "immutable": true, "stringData": {"password": secret}});
    create_part::<Secret>(space, secret).await?;
    Ok(())
}

/// Returns the config at version 1 with default settings, without a published ConfigMap.
async fn secret_shop(installation: &Installation<'_>, purpose: &str) -> Result<TestNamespace> {
    let space = installation.enabled(purpose).await?;
    bind(&space, "nudge-secrets").await?;
    version_with_secret(&space, "1", "one").await?;
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": {"version": "1"}})).await?;
    wait_until_current(&space, "1").await?;
    Ok(space)
}

async fn use_version(space: &TestNamespace, version: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"version": version}}));
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns what a pod is assigned that takes a version by a restart alone: what workloads are restarted with.
fn assigned(status: VersionedConfigStatus) -> Option<String> {
    let restarting = status.rollout.stage == Some(RolloutStage::Restarting);
    status.target_version.filter(|_| restarting).or(status.current_version)
}

/// Has the pod run what it is assigned now, if `works` says that it can.
async fn born(space: &TestNamespace, pod: &Pod, works: impl Fn(&str) -> bool) -> Option<()> {
    let config = space.api::<VersionedConfig>().get("shop").await.ok()?;
    let version = assigned(config.status?)?;
    if !works(&version) {
        return None;
    }
    let running = space.run(pod).await.ok()?;
    let mut conditions = serde_json::to_value(running.status?.conditions?).ok()?;
    let condition = json!({"type": "nudge.dev/ConfigCurrent", "status": "True", "reason": "Applied", "message": format!("shop={version}")});
    conditions.as_array_mut()?.push(condition);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    space.api::<Pod>().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.ok().map(drop)
}

/// Runs pods, but none of the version `bad`.
fn kubelet(space: &TestNamespace, bad: &Arc<Mutex<Option<String>>>) -> Kubelet {
    let (space, bad) = (space.clone(), Arc::clone(bad));
    Kubelet(tokio::spawn(async move {
        let mut turns = tokio::time::interval(Duration::from_millis(100));
        loop {
            turns.tick().await;
            let Ok(pods) = space.api::<Pod>().list(&ListParams::default()).await else { continue };
            let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            for pod in pods.items.iter().filter(|pod| !runs(pod)) {
                // It may be gone by now.
                let works = |version: &str| bad.lock().as_deref() != Some(version);
                let _ = born(&space, pod, works).await;
            }
        }
    }))
}

async fn uids(space: &TestNamespace) -> Result<Vec<String>> {
    let pods = space.api::<Pod>().list(&ListParams::default()).await?.items;
    let mut uids: Vec<String> = pods.iter().filter_map(kube::ResourceExt::uid).collect();
    uids.sort();
    Ok(uids)
}

async fn wait_until_held(space: &TestNamespace, message: &str) -> Result<()> {
    let status = wait_for_status(space, &format!("it is held: {message}"), |status| {
        let is_expected =
            |condition: &Condition| condition.reason == "NotRestarted" && condition.message.contains(message);
        ["Ready", "Stalled"]
            .iter()
            .all(|kind| status.conditions.iter().any(|condition| condition.type_ == *kind && is_expected(condition)))
    })
    .await?;
    ensure!(status.rollout.stage == Some(RolloutStage::Restarting) && status.pods.summary == "0/2", "{status:#?}");
    Ok(())
}

#[tokio::test]
async fn no_version_is_current_before_its_pods_were_born_with_it() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = secret_shop(installation, "by-restart").await?;
    let bad = Arc::default();
    deployment(&space, "web", json!({"template": with_agent("web"), "progressDeadlineSeconds": 8})).await?;
    let _kubelet = kubelet(&space, &bad);
    wait_until_available(&space, &["web"]).await?;
    let first = uids(&space).await?;

    version_with_secret(&space, "2", "two").await?;
    use_version(&space, "2").await?;
    wait_until_held(&space, "bind ClusterRole nudge-restart").await?;
    ensure!(uids(&space).await? == first && digest(&space, "web").await?.is_none());
    bind(&space, "nudge-restart").await?;
    let status = wait_until_current(&space, "2").await?;
    ensure!(status.pods.summary == "2/2" && status.published_version.is_none(), "{status:#?}");
    let second = uids(&space).await?;
    ensure!(second.iter().all(|uid| !first.contains(uid)), "current with pods of before");
    let content = digest(&space, "web").await?.context("not by the template")?;

    version_with_secret(&space, "3", "two").await?;
    use_version(&space, "3").await?;
    wait_until_current(&space, "3").await?;
    // Not even a restart that is left out shows that two Secrets are equal.
    let third = uids(&space).await?;
    ensure!(third.iter().all(|uid| !second.contains(uid)), "not restarted for another version with a Secret");

    let paused = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
    let deployments = space.api::<Deployment>();
    deployments.patch("web", &PatchParams::default(), &paused(true)).await?;
    version_with_secret(&space, "4", "four").await?;
    use_version(&space, "4").await?;
    wait_until_held(&space, "Deployment/web is paused").await?;
    deployments.patch("web", &PatchParams::default(), &paused(false)).await?;
    wait_until_current(&space, "4").await?;
    let fourth = digest(&space, "web").await?;
    ensure!(fourth.is_some() && fourth.as_ref() != Some(&content));
    wait_until_available(&space, &["web"]).await?;

    *bad.lock() = Some("5".to_owned());
    version_with_secret(&space, "5", "five").await?;
    use_version(&space, "5").await?;
    let status =
        wait_for_status(&space, "version 5 has failed", |status| status.state() == ConfigState::Failed).await?;
    let failure = status.rollout.failure.context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == ("5", "RestartFailed"), "{failure:?}");
    ensure!(status.current_version.as_deref() == Some("4") && digest(&space, "web").await? == fourth);
    wait_for_status(&space, "all run version 4", |status| status.pods.summary == "2/2").await.map(drop)
}

#[tokio::test]
async fn a_bare_pod_is_reported_and_not_counted() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = secret_shop(installation, "bare").await?;
    bind(&space, "nudge-restart").await?;
    let mut pod = with_agent("bare");
    pod["metadata"]["name"] = "bare".into();
    space.create_object::<Pod>(pod.clone()).await?;
    let _kubelet = kubelet(&space, &Arc::default());
    wait_for_status(&space, "the pod runs version 1", |status| status.pods.summary == "1/1").await?;
    version_with_secret(&space, "2", "two").await?;
    use_version(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    let (_, reason, message) = restarted_condition(&status).context("no condition Restarted")?;
    ensure!(reason == "Stale" && message.contains("bare"), "{message}");
    ensure!(status.pods.summary == "0/1", "{status:#?}");
    space.api::<Pod>().delete("bare", &DeleteParams::default().grace_period(0)).await?;
    eventually(WAIT_TIMEOUT, "the pod is made anew", async || space.create_object::<Pod>(pod.clone()).await.ok())
        .await?;
    wait_for_status(&space, "the pod runs version 2", |status| status.pods.summary == "1/1").await.map(drop)
}
