//! The audit trail of admission: versions mounted by pods, versions chosen by users, and refused rights.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::pods::injecting_cluster::{InjectingCluster, WAIT_TIMEOUT, create, dry, opted_in, with_annotation};

#[tokio::test]
async fn what_admission_decides_is_in_the_audit_trail() -> Result<()> {
    let Some(InjectingCluster { cluster, installation, replica }) = InjectingCluster::shared().await? else {
        return Ok(());
    };
    let space = installation.enabled("audit").await?;
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": "1"});
    let part = json!({"metadata": {"name": "shop-1", "labels": labels}, "immutable": true, "data": {"hidden-8c41": "hidden-8c42"}});
    space.create_object::<ConfigMap>(part).await?;
    let spec = json!({"rollout": at_once(), "allowedServiceAccounts": ["default"]});
    let configs = space.api::<VersionedConfig>();
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
    let chosen = Patch::Merge(json!({"spec": {"version": "1"}}));
    configs.patch("shop", &PatchParams::default(), &chosen).await?;
    let current = async || configs.get("shop").await.ok()?.status?.current_version;
    eventually(WAIT_TIMEOUT, "the version is current", current).await?;

    let named = with_annotation("web", "nudge.dev/configs", "shop");
    let mounts = async || {
        let pod = serde_json::to_string(&dry(&space, &named).await.ok()?).ok()?;
        pod.contains("shop-1").then_some(())
    };
    eventually(WAIT_TIMEOUT, "the version is mounted", mounts).await?;
    create(&space, &named).await?;
    // A service account that spec.allowedServiceAccounts does not name gets neither the config nor the pod.
    space.service_account("stranger").await?;
    for mut pod in [with_annotation("other", "nudge.dev/configs", "shop"), opted_in("other")] {
        pod["spec"]["serviceAccountName"] = json!("stranger");
        let refused = create(&space, &pod).await.err().context("it is to be refused")?.to_string();
        assert!(refused.contains("service account stranger of this pod may not get config shop"), "{refused}");
    }
    // A user without rights on ConfigMaps.
    let rules = json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]}]);
    space.service_account("eve").await?;
    space.allow("eve", rules).await?;
    let user = format!("system:serviceaccount:{}:eve", space.name);
    let eve = cluster.client(&cluster.user(&user, &["system:serviceaccounts"])).await?;
    let object = serde_json::from_value(json!({"metadata": {"name": "eves"}, "spec": {}}))?;
    let refused = async || {
        let result =
            Api::<VersionedConfig>::namespaced(eve.clone(), &space.name).create(&PostParams::default(), &object).await;
        result.err()?.to_string().contains("may not create it").then_some(())
    };
    eventually(WAIT_TIMEOUT, "she is refused", refused).await?;

    let log = replica.log();
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let find = |message: &str, fields: Value| {
        let mut of_target = lines.iter().filter(|line| line["target"] == "audit" && line["message"] == message);
        let holds = |line: &Value| fields.as_object().unwrap().iter().all(|(field, value)| line[field] == *value);
        assert!(of_target.any(|line| holds(line) && line["namespace"] == *space.name), "{message} {fields}: {log}");
    };
    let mounted = json!({"pod": "web", "service_account": "default", "config": "shop", "version": "1", "peer": "127.0.0.1", "dry_run": false});
    find("version mounted at admission", mounted);
    find("version chosen", json!({"config": "shop", "to": "1", "claimed_user": "admin", "peer": "127.0.0.1"}));
    let right =
        json!({"config": "eves", "action": "create it", "right": "update ConfigMap eves", "claimed_user": user});
    find("right refused", right);
    assert!(!log.contains("hidden-8c4"), "content stays out of the log");
    Ok(())
}
