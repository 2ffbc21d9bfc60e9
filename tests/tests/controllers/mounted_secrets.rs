//! The Secret parts that the kubelet has mounted, compared with what was sealed: agents ask the hub, which has the
//! seals.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use nudge_api::{ConfigState, VersionedConfig};
use nudge_protocol::status::ProblemReason;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{agent_token, at_once, bind, create_part, hub_ca, injected_pod_of};
use nudge_tests::{Installation, Pod, Replica};
use serde_json::json;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the only part of version 1.
async fn create_secret(space: &TestNamespace, pin: &str) -> Result<Secret> {
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": "1"});
    let object =
        json!({"metadata": {"name": "shop-1", "labels": labels}, "immutable": true, "stringData": {"pin": pin}});
    create_part(space, object).await
}

/// Starts the agent of a pod into which the kubelet has mounted this content.
async fn start(space: &TestNamespace, replica: &Replica, name: &str, pin: &str) -> Result<Pod> {
    let agent = json!({"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]});
    let spec = json!({
        "containers": [agent, {"name": "app", "image": "test"}],
        "volumes": [{"name": "part", "secret": {"secretName": "shop-1", "optional": true}}],
    });
    let object = injected_pod_of(space, &json!({"name": name}), &spec).await?;
    let mut pod =
        Pod::of(format!("https://{}", replica.hub), &hub_ca(space).await?, &agent_token(space, &object).await?)?;
    pod.mount("shop", "1", "1.secret", &[("pin", pin.as_bytes())])?;
    pod.spawn()?;
    Ok(pod)
}

#[tokio::test]
async fn a_secret_that_was_created_again_with_other_content_is_not_served() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("mounted").await?;
    bind(&space, "nudge-secrets").await?;
    let config = json!({"metadata": {"name": "shop"}, "spec": {"version": "1", "rollout": at_once()}});
    space.create_object::<VersionedConfig>(config).await?;
    create_secret(&space, "sealed").await?;
    let is_current =
        |config: &VersionedConfig| config.status.as_ref().is_some_and(|status| status.state() == ConfigState::Current);
    space.object_until(WAIT_TIMEOUT, "shop", "1 is current", is_current).await?;

    let recreate = async |pin: &str| {
        space.api::<Secret>().delete("shop-1", &DeleteParams::default()).await?;
        create_secret(&space, pin).await
    };
    recreate("forged").await?;
    let mut deceived = start(&space, replica, "deceived", "forged").await?;
    deceived.logs("part 1 of the mounted version 1 has another content than what was sealed").await?;
    // The kubelet of another node still has the sealed content.
    let mut other = start(&space, replica, "other", "sealed").await?;
    let mut client = other.client().await?;
    let status = other.wait_until_served(&mut client, "shop=1").await?;
    ensure!(client.get("/config/pin").await?.body == b"sealed"[..]);
    let problem = status.configs[0].problem.clone().context("no problem")?;
    assert_eq!(problem.reason, ProblemReason::NotFound, "{}", problem.message);
    ensure!(!problem.message.contains("mounted"), "{}", problem.message);

    recreate("sealed").await?;
    let mut client = deceived.client().await?;
    deceived.wait_until_served(&mut client, "shop=1").await?;
    ensure!(client.get("/config/pin").await?.body == b"sealed"[..]);
    Ok(())
}
