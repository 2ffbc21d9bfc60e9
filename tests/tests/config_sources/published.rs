//! A config that publishes its Secret, and whose versions a source makes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::Space;
use nudge_tests::cluster::installation::{NAMESPACE, SOURCES_ACCOUNT, at_once, bind};
use serde_json::{Value, json};

use crate::scene::{condition, config_until, enabled, is, is_current, live_secret, quick, until};

/// Lets the role sources decide about the published Secret of this name.
async fn may_decide(space: &Space, name: &str) -> Result<()> {
    let role = format!("publishes-{name}");
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["update"]}]);
    space.create_object::<Role>(json!({"metadata": {"name": role}, "rules": rules})).await?;
    let binding = json!({
        "metadata": {"name": role}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": SOURCES_ACCOUNT, "namespace": NAMESPACE}],
    });
    space.create_object::<RoleBinding>(binding).await.map(drop)
}

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
        quick(&space, name, &json!({"secret": {"name": living}})).await?;
        // Who decides about the published Secret needs the right to update it.
        let refused = until(&space, name, "it may not decide", is("NotAllowed")).await?;
        ensure!(condition(&refused, "Ready").2.contains(&format!("the right to update Secret {name} ")), "{refused:?}");
        may_decide(&space, name).await?;
        let first = is_current(&space, name, None).await?;
        ensure!(published(&space, name, &first).await? == (Some(kind.to_owned()), pairs(&one)?), "{name}");
        let patch = Patch::Merge(json!({"stringData": two}));
        space.api::<Secret>().patch(&living, &PatchParams::default(), &patch).await?;
        let second = is_current(&space, name, Some(&first)).await?;
        ensure!(published(&space, name, &second).await? == (Some(kind.to_owned()), pairs(&two)?), "{name}");
    }
    Ok(())
}
