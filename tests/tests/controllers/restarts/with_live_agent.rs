//! Pods with an agent that brings versions without a restart, and containers that take them only by one.

use nudge_api::ConditionType;

use super::progress::kubelet_with_agents;
use super::*;

/// Returns a template with an agent beside the container that reads the ConfigMap from the environment.
fn with_agent(app: &str, notify: Option<&str>) -> Value {
    let mut template = template(app);
    template["metadata"]["labels"]["nudge.dev/agent"] = "0.1.0".into();
    template["metadata"]["annotations"] = json!({"nudge.dev/inject": "true"});
    if let Some(notify) = notify {
        template["metadata"]["annotations"]["nudge.dev/notify"] = notify.into();
    }
    let agent = json!({"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]});
    template["spec"]["containers"].as_array_mut().into_iter().for_each(|all| all.push(agent.clone()));
    template
}

/// Returns a template whose init container renders files from a volume that the agent keeps.
fn rendering(app: &str) -> Value {
    let kept =
        json!([{"volume": "conf", "folder": "/run/nudge/volumes/1", "sources": [{"config": "shop", "mode": 420}]}]);
    let mut template = with_agent(app, Some("SIGHUP"));
    template["spec"]["containers"][0]["env"] = json!([]);
    template["spec"]["containers"][1]["env"] = json!([
        {"name": "NUDGE_CONFIGS", "value": "shop"}, {"name": "NUDGE_NOTIFY", "value": "app=SIGHUP"},
        {"name": "NUDGE_VOLUMES", "value": kept.to_string()}]);
    let mounts = json!([{"name": "nudge-files-1", "mountPath": "/in", "readOnly": true}]);
    template["spec"]["initContainers"] = json!([{"name": "render", "image": "test", "volumeMounts": mounts}]);
    template["spec"]["volumes"] = json!([{"name": "nudge-files-1", "emptyDir": {"medium": "Memory"}}]);
    template
}

async fn wait_until_held(space: &TestNamespace, message: &str) -> Result<VersionedConfigStatus> {
    wait_for_status(space, &format!("it is held: {message}"), |status| {
        let is_held = |held: &Condition| {
            held.type_ == "Stalled" && held.reason == "NotRestarted" && held.message.contains(message)
        };
        status.conditions.iter().any(is_held)
    })
    .await
}

/// Returns the uids of the pods of an application that are not being deleted.
async fn uids(space: &TestNamespace, app: &str) -> Result<Vec<String>> {
    let pods = space.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
    let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(living.filter_map(kube::ResourceExt::uid).collect())
}

#[tokio::test]
async fn what_only_variables_bring_is_brought_by_a_restart_with_an_agent_too() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "variables", json!({})).await?;
    // Nobody notifies `web`, a signal does not change the environment of `signalled`, and `alone` is to be left alone.
    for (name, notify) in [("web", None), ("signalled", Some("SIGHUP")), ("alone", Some("none"))] {
        deployment(&space, name, json!({"template": with_agent(name, notify)})).await?;
    }
    let _kubelet = kubelet_with_agents(&space);
    wait_until_available(&space, &["web", "signalled", "alone"]).await?;
    let before = [uids(&space, "web").await?, uids(&space, "signalled").await?].concat();
    // Their agents have version 2, and their processes do not.
    create_and_request(&space, "2").await?;
    let held = wait_until_held(&space, "bind ClusterRole nudge-restart").await?;
    ensure!(held.pods.summary == "2/6", "on target is what no restart has to bring: {held:#?}");
    bind(&space, "nudge-restart").await?;
    let status = wait_until_current(&space, "2").await?;
    ensure!(restarted_condition(&status).is_some_and(|(state, ..)| state == "True"), "{status:#?}");
    ensure!(status.pods.left_alone == ["Deployment/alone: app"], "{status:#?}");
    ensure!(digest(&space, "alone").await?.is_none(), "it is left alone");
    let after = [uids(&space, "web").await?, uids(&space, "signalled").await?].concat();
    ensure!(after.iter().all(|uid| !before.contains(uid)), "current while pods have the values from before");
    Ok(())
}

#[tokio::test]
async fn what_an_init_container_renders_is_brought_by_a_restart() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "rendered", json!({})).await?;
    deployment(&space, "web", json!({"template": rendering("web")})).await?;
    let _kubelet = kubelet_with_agents(&space);
    wait_until_available(&space, &["web"]).await?;
    let before = uids(&space, "web").await?;
    create_and_request(&space, "2").await?;
    wait_until_held(&space, "2 pods of Deployment/web do not run version 2").await?;
    ensure!(uids(&space, "web").await? == before);
    bind(&space, "nudge-restart").await?;
    let status = wait_until_current(&space, "2").await?;
    ensure!(status.pods.summary == "2/2", "{status:#?}");
    ensure!(
        uids(&space, "web").await?.iter().all(|uid| !before.contains(uid)),
        "current with what was rendered before"
    );
    Ok(())
}

/// The config of a baseline restarts nothing without an agent. With one, no process keeps an older environment under a
/// version that is current, and a restart by a user brings the version.
#[tokio::test]
async fn an_edited_config_map_is_not_current_before_processes_with_variables_were_restarted() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "edited", json!({})).await?;
    let follow = json!({"spec": {"version": null, "agentlessPolicy": "Ignore"}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(&follow)).await?;
    deployment(&space, "web", json!({"template": with_agent("web", Some("SIGHUP"))})).await?;
    deployment(&space, "plain", json!({})).await?;
    let _kubelet = kubelet_with_agents(&space);
    wait_until_available(&space, &["web", "plain"]).await?;
    let plain = uids(&space, "plain").await?;
    let edit = json!({"data": {"key": "edited"}});
    space.api::<ConfigMap>().patch("shop", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    let held = wait_until_held(&space, "not run version txt-").await?;
    ensure!(held.current_version.as_deref() == Some("1"), "{held:#?}");
    let restart = json!({"spec": {"template": {"metadata": {"annotations": {
        "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}}});
    space.api::<Deployment>().patch("web", &PatchParams::default(), &Patch::Merge(&restart)).await?;
    let status = wait_for_status(&space, "the text is current", |status| {
        let is_text = status.current_version.as_deref().is_some_and(|current| current.starts_with("txt-"));
        is_text && status.rollout.stage.is_none()
    })
    .await?;
    let ready = status.conditions.iter().find(|condition| condition.type_ == ConditionType::Ready.as_str());
    ensure!(ready.is_some_and(|ready| ready.status == "True"), "{status:#?}");
    ensure!(uids(&space, "plain").await? == plain, "without an agent it is left alone");
    Ok(())
}
