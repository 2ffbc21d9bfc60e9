//! A config that publishes its Secret, and whose versions a source makes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::Space;
use nudge_tests::cluster::installation::{at_once, bind};
use serde_json::{Value, json};

use crate::scene::{config_until, enabled, is_current, live_secret, may_publish, quick};

/// Waits until this version is published, and returns type and content of the Secret.
async fn published(space: &Space, name: &str, version: &str) -> Result<(Option<String>, Vec<(String, String)>)> {
    config_until(space, name, "it is published", |_, status| status.published_secret.as_deref() == Some(version))
        .await?;
    let secret = space.api::<Secret>().get(name).await?;
    let pairs = secret.data.into_iter().flatten();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((secret.type_, pairs.map(|(key, value)| (key, text(&value.0))).collect()))
}

fn pairs(data: &Value) -> Result<Vec<(String, String)>> {
    let data = data.as_object().context("no data")?.iter();
    data.map(|(key, value)| Ok((key.clone(), value.as_str().context("no text")?.to_owned()))).collect()
}

#[tokio::test]
async fn the_published_secret_has_the_type_and_the_content_of_the_living_one() -> Result<()> {
    let Some(space) = enabled("published", true).await? else { return Ok(()) };
    bind(&space, "nudge-publish-secrets").await?;
    let pull = |value: &str| json!({".dockerconfigjson": format!("{{\"auths\":{{\"{value}\":{{}}}}}}")});
    let tls = |value: &str| json!({"tls.crt": value, "tls.key": format!("{value}-key")});
    for (name, kind, one, two) in [
        ("tls", "kubernetes.io/tls", tls("one"), tls("two")),
        ("pull", "kubernetes.io/dockerconfigjson", pull("one"), pull("two")),
    ] {
        let spec = json!({"publish": ["Secret"], "rollout": at_once()});
        space.create_object::<VersionedConfig>(json!({"metadata": {"name": name}, "spec": spec})).await?;
        let living = format!("{name}-live");
        live_secret(&space, &living, kind, one.clone()).await?;
        may_publish(&space, name).await?;
        quick(&space, name, &json!({"secret": {"name": living}})).await?;
        let first = is_current(&space, name, None).await?;
        ensure!(published(&space, name, &first).await? == (Some(kind.to_owned()), pairs(&one)?), "{name}");
        let patch = Patch::Merge(json!({"stringData": two}));
        space.api::<Secret>().patch(&living, &PatchParams::default(), &patch).await?;
        let second = is_current(&space, name, Some(&first)).await?;
        ensure!(published(&space, name, &second).await? == (Some(kind.to_owned()), pairs(&two)?), "{name}");
    }
    Ok(())
}
