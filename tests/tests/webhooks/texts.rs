//! Texts that workloads read themselves, behind a hold: an edit of an object that is read is refused, and one that
//! passed is put back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nudge_api::{PartKind, VersionedConfig};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind};
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_secs(100);

fn edit(value: &str) -> Patch<Value> {
    Patch::Merge(json!({"data": {"key": value}}))
}

/// Creates a running pod without an agent that has this variable.
async fn create_reader(space: &TestNamespace, source: &Value) -> Result<()> {
    let variable = json!({"name": "KEY", "valueFrom": source});
    space
        .create_object::<Pod>(json!({"metadata": {"name": "api"}, "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "app", "image": "test", "env": [variable]}]}}))
        .await?;
    // A pod that has not started reads the object of that moment.
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    space.api::<Pod>().patch_status("api", &PatchParams::default(), &running).await?;
    Ok(())
}

#[tokio::test]
async fn an_edit_that_readers_would_have_at_once_is_refused_or_put_back() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("read-texts").await?;
    let (maps, configs) = (space.api::<ConfigMap>(), space.api::<VersionedConfig>());
    let map = |value: &str| json!({"metadata": {"name": "web"}, "data": {"key": value}});
    space.create_object::<ConfigMap>(map("one")).await?;
    create_reader(&space, &json!({"configMapKeyRef": {"name": "web", "key": "key"}})).await?;
    let spec = json!({"objects": ["ConfigMap"], "rollout": at_once()});
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let first = space
        .config_status_within(WAIT_TIMEOUT, "web", "the reader is named", |status| {
            status.current_version.is_some() && !status.internal.readers.is_empty()
        })
        .await?;
    let readers = first.internal.readers_of(PartKind::ConfigMap);
    ensure!(readers.is_some_and(|readers| readers.workloads == ["Pod/api"]), "{first:#?}");
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

#[tokio::test]
async fn only_the_object_that_is_read_is_refused_and_a_secret_can_be_put_back() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("read-secrets").await?;
    for role in ["nudge-secrets", "nudge-publish-secrets"] {
        bind(&space, role).await?;
    }
    let (maps, secrets) = (space.api::<ConfigMap>(), space.api::<Secret>());
    let map = json!({"metadata": {"name": "web"}, "data": {"key": "one"}});
    let owner = space.create_object::<ConfigMap>(map).await?;
    let pin = |pin: &str| Patch::Merge(json!({"stringData": {"pin": pin}}));
    space.create_object::<Secret>(json!({"metadata": {"name": "web"}, "stringData": {"pin": "hunter2"}})).await?;
    create_reader(&space, &json!({"secretKeyRef": {"name": "web", "key": "pin"}})).await?;
    let spec = json!({"objects": ["ConfigMap", "Secret"], "rollout": at_once()});
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let first = space
        .config_status_within(WAIT_TIMEOUT, "web", "the reader is named", |status| {
            status.current_version.is_some() && !status.internal.readers.is_empty()
        })
        .await?;
    ensure!(first.internal.readers.iter().all(|readers| readers.kind == PartKind::Secret), "{first:#?}");

    let hold = Patch::Merge(json!({"spec": {"rollout": {"hold": {"reason": "fair"}}}}));
    space.api::<VersionedConfig>().patch("web", &PatchParams::default(), &hold).await?;
    let (now, dry_run) = (PatchParams::default(), PatchParams { dry_run: true, ..PatchParams::default() });
    let refusal = eventually(WAIT_TIMEOUT, "an edit of the Secret is refused", async || {
        secrets.patch("web", &dry_run, &pin("hunter3")).await.err().map(|error| error.to_string())
    })
    .await?;
    ensure!(refusal.contains("Secret web must not be edited now"), "{refusal}");
    maps.patch("web", &dry_run, &edit("two")).await.context("nobody reads the ConfigMap itself")?;

    // The webhook does not see an edit without the label, and nothing is written to a Secret with an owner.
    let uid = owner.metadata.uid.context("no uid")?;
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": uid}]);
    let label = |value: Value| json!({"labels": {"nudge.dev/follows": value}, "ownerReferences": owners});
    secrets.patch("web", &now, &Patch::Merge(json!({"metadata": label(Value::Null)}))).await?;
    secrets.patch("web", &now, &pin("hunter3")).await.context("without the label")?;
    let with_label = |pin: &str| Patch::Merge(json!({"metadata": label(json!("web")), "stringData": {"pin": pin}}));
    let refused = secrets.patch("web", &dry_run, &with_label("hunter4")).await;
    ensure!(refused.is_err(), "{:?}", refused.map(|secret| secret.metadata));
    secrets.patch("web", &now, &with_label("hunter2")).await.context("the text is put back")?;
    Ok(())
}
