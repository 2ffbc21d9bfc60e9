//! A source whose config publishes a Secret.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::{at_once, bind};
use nudge_tests::servers::git_content::read_again;
use serde_json::json;

use crate::config_sources::refused::sources_of;
use crate::config_sources::scene::{
    condition, config_until, create_quick_source, enabled, is, may_publish, patched, until, wait_until_current,
};
use crate::config_sources::vault::secret;

#[tokio::test]
async fn a_published_secret_follows_vault_where_the_account_may_update_it() -> Result<()> {
    let Some(space) = enabled("publishing", true).await? else { return Ok(()) };
    bind(&space, "nudge-publish-secrets").await?;
    let spec = json!({"rollout": at_once(), "objects": ["Secret"]});
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "tls"}, "spec": spec});
    space.create_object::<VersionedConfig>(config).await?;
    let Some((bao, from)) = secret(&space, &["tls.key=b"]).await? else { return Ok(()) };

    // The user who makes the source needs the right, too.
    let rules = json!([
        {"apiGroups": ["nudge.dev"], "resources": ["configsources"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
    ]);
    let jane = sources_of(&space, "jane", rules).await?;
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "tls"}, "spec": {"from": from}
    });
    let result = jane.create(&PostParams::default(), &serde_json::from_value(object)?).await;
    let error = result.err().context("it is not refused")?.to_string();
    ensure!(error.contains("this needs the right to update Secret tls"), "{error}");

    create_quick_source(&space, "tls", &from).await?;
    let refused = until(&space, "tls", "it may not be requested", is("NotAllowed")).await?;
    let message = condition(&refused, "Ready").2;
    ensure!(message.contains("needs the right to update Secret tls"), "{message}");
    ensure!(
        message.contains("kubectl create role nudge-source-publish-tls --verb=update --resource=secrets"),
        "{message}"
    );
    may_publish(&space, "tls").await?;
    patched(&space, "tls", &json!({"metadata": {"annotations": {"nudge.dev/sync": "1"}}})).await?;
    let first = wait_until_current(&space, "tls", None).await?;
    let secrets = space.api::<Secret>();
    let published = async |version: &str, key: &[u8]| -> Result<()> {
        config_until(&space, "tls", "it is published", |_, status| {
            status.published_secret_version.as_deref() == Some(version)
        })
        .await?;
        let published = secrets.get("tls").await?;
        ensure!(published.data.context("no data")?["tls.key"].0 == key);
        Ok(())
    };
    published(&first, b"b").await?;
    bao.put("shop", &["tls.key=c"])?;
    read_again(&space.api()).await?;
    let second = wait_until_current(&space, "tls", Some(&first)).await?;
    published(&second, b"c").await
}
