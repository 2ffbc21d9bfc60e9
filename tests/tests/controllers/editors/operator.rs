//! Secrets that an operator makes and renews in place, as cert-manager and External Secrets do.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use nudge_api::{ConditionType, ConfigState, PartKind, Reason, VersionedConfigStatus, find_condition};
use nudge_tests::Installation;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind};
use serde_json::{Value, json};

use super::followed::{Followed, Origin, check_fields, reason};

/// Writes the Secret as the operator does.
async fn renew(space: &TestNamespace, name: &str, owner: &Value, value: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "ownerReferences": owner},
        "type": "kubernetes.io/tls", "stringData": {"tls.crt": "public", "tls.key": "hunter2", "number": value},
    });
    let operator = PatchParams::apply("operator").force();
    space.api::<Secret>().patch(name, &operator, &Patch::Apply(&secret)).await?;
    Ok(())
}

/// Creates a pod without an agent that reads the Secret itself, so that a text that fails would be written back.
async fn direct_reader(space: &TestNamespace, name: &str) -> Result<()> {
    let container = json!({"name": "app", "image": "test", "envFrom": [{"secretRef": {"name": name}}]});
    let spec = json!({"automountServiceAccountToken": false, "containers": [container]});
    let pod = space.create_object::<Pod>(json!({"metadata": {"name": format!("{name}-reader")}, "spec": spec})).await?;
    space.run(&pod).await?;
    Ok(())
}

#[tokio::test]
async fn a_secret_of_an_operator_is_followed_and_never_written_also_after_a_failure() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("operators").await?;
    for role in ["nudge-secrets", "nudge-publish-secrets"] {
        bind(&space, role).await?;
    }
    space.service_account("app").await?;
    let certificate: ConfigMap = space.create_object(json!({"metadata": {"name": "certificate"}})).await?;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "certificate", "uid": certificate.uid()}]);
    try_join_all([("owned", owner), ("applied", Value::Null)].map(async |(name, owner)| {
        let mut followed =
            Followed::new(installation.cluster, space.clone(), name, Origin::Hand(PartKind::Secret)).await?;
        renew(&space, name, &owner, "one").await?;
        followed.start(replica.hub).await?;
        direct_reader(&space, name).await?;
        followed.set(json!({"rollout": at_once()})).await?;
        renew(&space, name, &owner, "two").await?;
        followed.wait_until_current("two").await?;

        followed.refuse();
        renew(&space, name, &owner, "three").await?;
        let is_refused = |status: &VersionedConfigStatus| {
            status.state() == ConfigState::Failed
                && !status.internal.readers.is_empty()
                && reason(status, ConditionType::SecretPublished) == Reason::NotOurs.as_str()
        };
        let failed = followed.wait_for("it fails, and is not written back", is_refused).await?;
        ensure!(followed.serves("two"), "{failed:#?}");
        let condition = find_condition(&failed.conditions, ConditionType::SecretPublished).context("just seen")?;
        ensure!(condition.message.contains("would overwrite it, so correct the text there"), "{}", condition.message);
        ensure!(!serde_json::to_string(&failed)?.contains("hunter"), "{failed:#?}");
        let secret = space.api::<Secret>().get(name).await?;
        ensure!(secret.data.iter().flatten().any(|(_, value)| value.0 == b"three"), "the Secret was written");
        check_fields(&secret)?;
        // The Secret of an owner does not even get the label.
        ensure!(secret.labels().contains_key("nudge.dev/follows") == (name == "applied"));

        followed.agree();
        renew(&space, name, &owner, "four").await?;
        followed.wait_until_current("four").await?;
        check_fields(&space.api::<Secret>().get(name).await?)
    }))
    .await?;
    Ok(())
}
