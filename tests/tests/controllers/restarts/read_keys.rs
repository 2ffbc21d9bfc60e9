//! Workloads that read single keys are restarted only if the value of such a key has changed.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{bind, create_part};
use serde_json::{Value, json};

use super::{
    deployment, digest, installation, restarted_condition, shop, template, wait_for_status, wait_until_available,
    wait_until_current,
};
use crate::kubelet::Kubelet;

/// Makes a version of these data, and waits until it is current.
async fn move_to(space: &TestNamespace, name: &str, data: Value) -> Result<()> {
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": name});
    let object =
        json!({"metadata": {"name": format!("shop-{name}"), "labels": labels}, "immutable": true, "data": data});
    create_part::<ConfigMap>(space, object).await?;
    let patch = json!({"spec": {"version": name}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let status = wait_until_current(space, name).await?;
    let condition = restarted_condition(&status).context("no condition Restarted")?;
    ensure!(condition.0 == "True", "{condition:?}");
    Ok(())
}

/// Returns the uids of the pods of an app.
async fn pods(space: &TestNamespace, app: &str) -> Result<BTreeSet<String>> {
    let list = space.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await?;
    Ok(list.iter().filter_map(ResourceExt::uid).collect())
}

#[tokio::test]
async fn who_reads_no_key_that_changes_is_not_restarted() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = shop(installation, "read-keys", json!({})).await?;
    bind(&space, "nudge-restart").await?;
    deployment(&space, "variable", json!({})).await?;
    let with = |app: &str, more: &Value| {
        let mut template = template(app);
        let container = &mut template["spec"]["containers"][0];
        container.as_object_mut().context("a container")?.remove("env");
        for (key, value) in more["container"].as_object().context("an object")? {
            container[key] = value.clone();
        }
        template["spec"]["volumes"] = more["volumes"].clone();
        anyhow::Ok(json!({"template": template}))
    };
    let from = json!({"container": {"envFrom": [{"configMapRef": {"name": "shop"}}]}, "volumes": []});
    deployment(&space, "whole", with("whole", &from)?).await?;
    let file = json!({
        "container": {"volumeMounts": [{"name": "shop", "mountPath": "/etc/key", "subPath": "key"}]},
        "volumes": [{"name": "shop", "configMap": {"name": "shop"}}],
    });
    deployment(&space, "file", with("file", &file)?).await?;
    let bare = json!({"replicas": 1, "selector": {"matchLabels": {"app": "bare"}}, "template": template("bare")});
    space.create_object::<ReplicaSet>(json!({"metadata": {"name": "bare"}, "spec": bare})).await?;
    let _kubelet = Kubelet::start(&space, |_| true);
    let all = ["variable", "whole", "file"];
    wait_until_available(&space, &all).await?;
    nudge_tests::eventually(super::WAIT_TIMEOUT, "bare is Ready", async || {
        let status = space.api::<ReplicaSet>().get("bare").await.ok()?.status?;
        (status.ready_replicas == Some(1)).then_some(())
    })
    .await?;
    let bare = pods(&space, "bare").await?;

    move_to(&space, "2", json!({"key": "1", "other": "a"})).await?;
    ensure!(digest(&space, "whole").await?.is_some(), "whole reads all keys");
    for name in ["variable", "file"] {
        ensure!(digest(&space, name).await?.is_none(), "{name} was restarted, and reads no key that changed");
    }
    ensure!(pods(&space, "bare").await? == bare, "a pod was evicted that reads no key that changed");

    move_to(&space, "3", json!({"key": "3", "other": "a"})).await?;
    let first = digest(&space, "variable").await?.context("variable was not restarted")?;
    ensure!(digest(&space, "file").await?.as_ref() == Some(&first), "the same keys are the same template");
    ensure!(pods(&space, "bare").await? != bare, "no pod was evicted");
    wait_until_available(&space, &all).await?;

    let whole = digest(&space, "whole").await?;
    move_to(&space, "4", json!({"key": "3", "other": "b"})).await?;
    ensure!(digest(&space, "variable").await?.as_ref() == Some(&first), "variable was restarted");
    ensure!(digest(&space, "whole").await? != whole, "whole was not restarted");
    wait_for_status(&space, "version 4 is published", |status| status.published_version.as_deref() == Some("4"))
        .await?;
    Ok(())
}
