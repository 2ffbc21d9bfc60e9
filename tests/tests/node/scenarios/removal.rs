//! Nudge removed as README says: pods continue with what they have, and every ConfigMap stays as it was.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ListParams;
use time::OffsetDateTime;

use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;
use nudge_tests::eventually;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "removal").await?;
    home.apply_examples(&["shop", "shell"])?;
    home.at_once("shop").await?;
    let pod = home.ready_pod("app.kubernetes.io/name=example-shell").await?;
    let log = home.follow(&pod).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0").await?;
    home.activate("shop", "1.0.1").await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.1").await?;
    home.wait_until_current("shop", "1.0.1").await?;
    let before = maps(&home).await?;
    ensure!(["shop-1.0.0", "shop-1.0.1"].iter().all(|name| before.contains_key(*name)), "{:?}", before.keys());

    suite.removed().await?;

    assert_untouched(&home, &pod).await?;
    ensure!(maps(&home).await? == before, "ConfigMaps have changed");
    // The agent still answers, with what it has.
    let pod = pod.name_any();
    let served = home.kubectl(&["exec", &pod, "-c", "app", "--", "nudge-agent", "get", "nudge.configs"])?;
    ensure!(served.trim() == "shop=1.0.1", "the agent serves {served:?}");
    // A pod that starts now has no agent, and nothing keeps it from starting.
    home.kubectl(&["delete", "pod", &pod, "--wait=false"])?;
    let created = eventually(WAIT_TIMEOUT, "another pod is made", async || {
        let pods = home.space.api::<k8s_openapi::api::core::v1::Pod>().list(&ListParams::default()).await.ok()?;
        pods.items.into_iter().find(|other| other.name_any() != pod && other.metadata.deletion_timestamp.is_none())
    });
    let created = created.await?;
    ensure!(!created.labels().contains_key("nudge.dev/agent"), "{created:?}");
    Ok(())
}

/// Returns every ConfigMap that is the user's, with all that users see of it.
async fn maps(home: &ScenarioNamespace<'_>) -> Result<BTreeMap<String, ConfigMap>> {
    let config_maps = home.space.api::<ConfigMap>().list(&ListParams::default()).await?;
    let user = |map: &ConfigMap| map.name_any() != "kube-root-ca.crt";
    Ok(config_maps.items.into_iter().filter(user).map(|map| (map.name_any(), map)).collect())
}
