//! With the injector gone: requests to webhooks with `Ignore` pass, authorizations fail, and namespaces can be deleted.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_admission::Webhook;
use nudge_api::{RolloutPolicy, VersionedConfig};
use nudge_tests::cluster::{Authority, Cluster, Options};
use nudge_tests::eventually;
use serde_json::json;

use crate::guarded_cluster::{SOON, config, install_crd, install_webhooks, part, rollout_policy, sealed, serve};
use crate::server::{Broken, start};

#[tokio::test]
async fn an_outage_blocks_only_the_choice_of_versions() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let admin = cluster.admin().await?;
    let authority = Authority::new("admission")?;
    let server = serve(&cluster, &authority.server(&["127.0.0.1"])?, Arc::default()).await?;
    install_crd(&admin).await?;
    install_webhooks(&admin, server.address(), &authority.certificate()).await?;
    let space = cluster.space_with("outage", &[("nudge.dev/enabled", "true")]).await?;
    let made = async |name: &str| space.create_object::<ConfigMap>(part(name)).await;
    let mut count = 0;
    eventually(SOON, "the webhooks are asked", async || {
        count += 1;
        let made = made(&format!("probe-{count}")).await.ok()?;
        made.immutable
    })
    .await?;
    let config_maps = space.api::<ConfigMap>();
    let own = config_maps.get(&format!("probe-{count}")).await?;
    let status = json!({"currentVersion": "1.0.1", "versions": [sealed("1.0.1", &[&own])]});
    config(&space, "shop", json!({}), status).await?;
    let guarded = cluster.space_with("guarded", &[("nudge.dev/enabled", "true")]).await?;
    config(&guarded, "shop", json!({"rollout": {"approval": {}}}), json!({"currentVersion": "1"})).await?;
    config_maps.delete(&format!("probe-{count}"), &DeleteParams::default()).await.unwrap_err();

    let policies: Api<RolloutPolicy> = Api::all(admin.clone());
    let held = rollout_policy("held", &["UTC"], &json!({"reason": "black friday"}));
    policies.create(&PostParams::default(), &held).await?;

    server.stop().await;
    // Who may write policies ends a hold, whatever is away.
    let lifted = Patch::Merge(json!({"spec": {"hold": null}}));
    assert_eq!(policies.patch("held", &PatchParams::default(), &lifted).await?.spec.hold, None);
    assert_eq!(made("a").await?.immutable, None);
    config_maps.delete("a", &DeleteParams::default()).await?;
    let configs = space.api::<VersionedConfig>();
    let chosen = Patch::Merge(json!({"spec": {"version": "2"}}));
    let refused = configs.patch("shop", &PatchParams::default(), &chosen).await.unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook \"configs-requested.nudge.dev\""), "{refused}");
    let status = Patch::Merge(json!({"status": {"previousVersion": "1"}}));
    configs.patch_status("shop", &PatchParams::default(), &status).await?;
    let elsewhere = cluster.space("elsewhere").await?;
    config(&elsewhere, "shop", json!({"version": "1"}), json!({"currentVersion": "1"})).await?;
    space.delete(SOON * 2).await?;
    // Deleted and created without its guards: nobody does that meanwhile, and neither does the deletion of the
    // namespace below 1.28.
    let refused =
        guarded.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook \"configs-guarded-delete.nudge.dev\""), "{refused}");

    // A server that answers with a failure is an outage too.
    let both: Vec<Arc<dyn Webhook>> = vec![Arc::new(Broken("/mutate/configs")), Arc::new(Broken("/validate/configs"))];
    let broken = start(&authority, both, |_| ()).await?;
    let space = cluster.space_with("broken", &[("nudge.dev/enabled", "true")]).await?;
    let all = DeleteParams::default();
    Api::<MutatingWebhookConfiguration>::all(admin.clone()).delete("nudge-injector", &all).await?;
    Api::<ValidatingWebhookConfiguration>::all(admin.clone()).delete("nudge-injector", &all).await?;
    install_webhooks(&admin, broken.address(), &authority.certificate()).await?;
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"version": "1"}
    });
    eventually(SOON, "the failure is seen", async || {
        let _ = space.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await;
        let refused = space.create_object::<VersionedConfig>(object.clone()).await.err()?;
        refused.to_string().contains("an internal fault").then_some(())
    })
    .await?;
    space.create_object::<ConfigMap>(part("a")).await?;
    Ok(())
}
