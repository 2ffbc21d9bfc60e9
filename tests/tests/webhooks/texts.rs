//! Texts that workloads read themselves, behind a hold: an edit is refused, and one that passed is put back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_secs(100);

fn edit(value: &str) -> Patch<Value> {
    Patch::Merge(json!({"data": {"key": value}}))
}

#[tokio::test]
async fn an_edit_that_readers_would_have_at_once_is_refused_or_put_back() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("read-texts").await?;
    let (maps, configs) = (space.api::<ConfigMap>(), space.api::<VersionedConfig>());
    let map = |value: &str| json!({"metadata": {"name": "web"}, "data": {"key": value}});
    space.create_object::<ConfigMap>(map("one")).await?;
    let variable = json!({"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "key"}}});
    space
        .create_object::<Pod>(json!({"metadata": {"name": "api"}, "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "app", "image": "test", "env": [variable]}]}}))
        .await?;
    // A pod that has not started reads the object of that moment.
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    space.api::<Pod>().patch_status("api", &PatchParams::default(), &running).await?;
    let spec = json!({"objects": ["ConfigMap"], "rollout": at_once()});
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let first = space
        .config_status_within(WAIT_TIMEOUT, "web", "the reader is named", |status| {
            status.current_version.is_some() && status.internal.readers.is_some()
        })
        .await?;
    ensure!(first.internal.readers.as_ref().is_some_and(|readers| readers.workloads == ["Pod/api"]), "{first:#?}");
    let is_labelled =
        |map: &ConfigMap| map.metadata.labels.iter().flatten().any(|(label, _)| label == "nudge.dev/follows");
    eventually(WAIT_TIMEOUT, "the label", async || maps.get("web").await.ok().filter(is_labelled)).await?;
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    maps.patch("web", &dry_run, &edit("two")).await.context("nothing is refused")?;

    let hold = |hold: Value| Patch::Merge(json!({"spec": {"rollout": {"hold": hold}}}));
    configs.patch("web", &PatchParams::default(), &hold(json!({"reason": "fair"}))).await?;
    let refusal = eventually(WAIT_TIMEOUT, "an edit is refused", async || {
        maps.patch("web", &dry_run, &edit("two")).await.err().map(|error| error.to_string())
    })
    .await?;
    for part in ["ConfigMap web must not be edited now", "Pod/api", "fair", "kubectl nudge create web VERSION"] {
        ensure!(refusal.contains(part), "{refusal}");
    }
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    maps.patch("web", &PatchParams::default(), &label).await.context("a label")?;

    // An object that is created again has no label, so nobody asks the webhook.
    maps.delete("web", &DeleteParams::default()).await?;
    space.create_object::<ConfigMap>(map("two")).await?;
    let put_back =
        async || maps.get("web").await.ok().filter(|map| map.data.as_ref().is_some_and(|data| data["key"] == "one"));
    eventually(WAIT_TIMEOUT, "the text is put back", put_back).await?;
    let said = async || {
        let events = space.api::<Event>().list(&ListParams::default()).await.ok()?.items;
        events.into_iter().find(|event| event.reason.as_deref() == Some("TextContested"))?.message
    };
    let message = eventually(WAIT_TIMEOUT, "an Event", said).await?;
    ensure!(message.contains("OnHold") && message.contains("kubectl nudge use web txt-"), "{message}");
    let returned = space
        .config_status_within(WAIT_TIMEOUT, "web", "the text is the current version again", |status| {
            status.desired_version == status.current_version
        })
        .await?;
    ensure!(returned.versions.len() == 2 && returned.internal.written_back.is_empty(), "{returned:#?}");

    configs.patch("web", &PatchParams::default(), &hold(Value::Null)).await?;
    let pass = async || maps.patch("web", &PatchParams::default(), &edit("three")).await.ok();
    eventually(WAIT_TIMEOUT, "an edit passes again", pass).await?;
    space
        .config_status_within(WAIT_TIMEOUT, "web", "it is current", |status| {
            status.current_version.as_ref().is_some_and(|version| version.starts_with("txt-"))
                && status.rollout.stage.is_none()
        })
        .await?;
    Ok(())
}
