//! The users who may write measurements, the users who may request them, and the credentials that are used.

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use nudge_api::{RolloutAnalysis, VersionedConfig};
use nudge_tests::cluster::installation::{ANALYSIS_ACCOUNT, NAMESPACE};
use serde_json::{Value, json};

use crate::analysis::scene::shared;

fn denied<T: std::fmt::Debug>(written: kube::Result<T>) -> Result<String> {
    match written {
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        other => anyhow::bail!("{other:?}"),
    }
}

#[tokio::test]
async fn nobody_but_nudge_says_what_was_measured() -> Result<()> {
    let Some((installation, _)) = shared().await? else { return Ok(()) };
    let space = installation.enabled("forged").await?;
    let object = json!({
        "apiVersion": "internal.nudge.dev/v1alpha1", "kind": "RolloutAnalysis", "metadata": {"name": "shop"},
        "spec": {"targetVersion": "2", "generation": 1, "round": "a", "pods": ["web"]},
    });
    let object: RolloutAnalysis = serde_json::from_value(object)?;
    // An administrator of the cluster, whom no role refuses anything.
    let analyses = space.api::<RolloutAnalysis>();
    let message = denied(analyses.create(&PostParams::default(), &object).await)?;
    ensure!(message.contains("only Nudge itself"), "{message}");
    // The controllers make it; a user who can write all of the namespace can't write its answers.
    let control = installation
        .cluster
        .client(&nudge_tests::cluster::Identity::Token(&installation.token("nudge-injector").await?))
        .await?;
    let of_control = Api::<RolloutAnalysis>::namespaced(control, &space.name);
    let apply = PatchParams::apply("test").force();
    of_control.patch("shop", &apply, &Patch::Apply(&object)).await?;
    let good = json!({"status": {"round": "a", "queries": [{"name": "errors", "answers": [
        {"number": 1, "answerTime": "2026-01-01T00:00:00Z", "target": "0", "control": "0"}]}]}});
    let merge = |patch: &Value| Patch::Merge(patch.clone());
    let message = denied(analyses.patch_status("shop", &PatchParams::default(), &merge(&good)).await)?;
    ensure!(message.contains(&format!("system:serviceaccount:{NAMESPACE}:{ANALYSIS_ACCOUNT}")), "{message}");
    let other = json!({"spec": {"round": "b"}});
    denied(analyses.patch("shop", &PatchParams::default(), &merge(&other)).await)?;
    denied(of_control.patch_status("shop", &PatchParams::default(), &merge(&good)).await)?;
    // The role itself writes answers and nothing else.
    let token = installation.token(ANALYSIS_ACCOUNT).await?;
    let role = installation.cluster.client(&nudge_tests::cluster::Identity::Token(&token)).await?;
    let of_role = Api::<RolloutAnalysis>::namespaced(role, &space.name);
    denied(of_role.patch("shop", &PatchParams::default(), &merge(&other)).await)?;
    let written = of_role.patch_status("shop", &PatchParams::default(), &merge(&good)).await?;
    ensure!(written.status.context("no status")?.queries.len() == 1);
    Ok(())
}

#[tokio::test]
async fn an_analysis_must_make_sense_and_sends_no_secret_that_its_user_may_not_get() -> Result<()> {
    let Some((installation, _)) = shared().await? else { return Ok(()) };
    let space = installation.enabled("specs").await?;
    let admin = space.api::<VersionedConfig>();
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": {}})).await?;
    let analysis = |change: &Value| {
        let mut one = json!({"name": "errors", "max": "0.01", "periodSeconds": 5, "prometheus": {
            "address": "http://prometheus.monitoring.svc:9090", "query": "sum(rate(errors{pod=~\"{{pods}}\"}[1m]))"}});
        for (key, value) in change.as_object().into_iter().flatten() {
            one[key] = value.clone();
        }
        json!({"spec": {"rollout": {"analysis": [one]}}})
    };
    let write = async |api: &Api<VersionedConfig>, change: &Value| {
        api.patch("shop", &PatchParams::default(), &Patch::Merge(analysis(change))).await
    };
    for (change, says) in [
        (json!({"max": null}), "set max, or maxRatio, or both"),
        (json!({"periodSeconds": 1}), "periodSeconds"),
        (json!({"prometheus": {"address": "http://a:9090", "query": "up"}}), "the query must have {{pods}}"),
        (json!({"prometheus": {"address": "http://a:9090", "query": "{{pods}}[2h]"}}), "it looks back for 7200 s"),
        (json!({"prometheus": {"address": "http://a/b\u{7f}", "query": "{{pods}}"}}), "its path may hold"),
        (json!({"prometheus": {"address": "http://a:b@c", "query": "{{pods}}"}}), "prometheus.address"),
        (json!({"failures": 11}), "failures"),
        (json!({"max": "-1"}), "max"),
    ] {
        let message = denied(write(&admin, &change).await)?;
        ensure!(message.contains(says), "{change}: {message}");
    }
    // Who may change the config and update its ConfigMap, and may not get the Secret.
    space.service_account("dev").await?;
    let config =
        json!({"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["get", "patch", "override"]});
    let map = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]});
    space.allow("dev", json!([config, map])).await?;
    let user = format!("system:serviceaccount:{}:dev", space.name);
    let identity = installation.cluster.user(&user, &[]);
    let dev = Api::<VersionedConfig>::namespaced(installation.cluster.client(&identity).await?, &space.name);
    let metrics = json!({"name": "metrics"});
    let sends = json!({
        "prometheus": {"address": "http://evil.example.com", "query": "{{pods}}", "secretRef": metrics}
    });
    let text = denied(write(&dev, &sends).await)?;
    ensure!(text.contains("this needs the right to get Secret metrics in namespace"), "{text}");
    write(&dev, &json!({})).await?;
    let secret = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["metrics"], "verbs": ["get"]});
    space.allow("dev", json!([secret])).await?;
    write(&dev, &sends).await?;
    // With the Secret another address is a question of its own.
    Ok(())
}
