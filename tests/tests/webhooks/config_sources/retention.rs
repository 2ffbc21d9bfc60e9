//! A secret of Vault that is gone: its older versions go, too.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_api::VersionedConfig;
use nudge_tests::eventually;
use nudge_tests::servers::git_content::read_again;
use serde_json::json;

use crate::config_sources::scene::{WAIT_TIMEOUT, enabled, is, patched, source, until, wait_until_current};
use crate::config_sources::vault::secret;

#[tokio::test]
async fn older_secret_versions_go_some_time_after_their_secret() -> Result<()> {
    let Some(space) = enabled("retention", true).await? else { return Ok(()) };
    let Some((bao, from)) = secret(&space, &["pin=1"]).await? else { return Ok(()) };
    let extra_spec = json!({"debounceSeconds": 0, "minPeriodSeconds": 0, "historyLimit": 5});
    source(&space, "shop", &from, &extra_spec).await?;
    let mut all_versions = vec![wait_until_current(&space, "shop", None).await?];
    for pin in ["pin=2", "pin=3", "pin=4"] {
        bao.put("shop", &[pin])?;
        read_again(&space.api()).await?;
        all_versions.push(wait_until_current(&space, "shop", all_versions.last().map(String::as_str)).await?);
    }
    let secrets = space.api::<Secret>();
    let versions = async || -> Result<Vec<String>> {
        let sealed_secrets = secrets.list_metadata(&ListParams::default().labels("nudge.dev/config=shop")).await?;
        Ok(sealed_secrets.iter().map(|part| part.labels()["nudge.dev/version"].clone()).collect())
    };
    let annotation = async || -> Result<Option<String>> {
        let config = space.api::<VersionedConfig>().get("shop").await?;
        Ok(config.annotations().get("nudge.dev/source-gone").cloned())
    };
    bao.bao(&["kv", "delete", "secret/shop"])?;
    read_again(&space.api()).await?;
    // By default they stay for a day.
    let gone = until(&space, "shop", "it is gone", is("SourceGone")).await?;
    ensure!(gone.gone_time.is_some() && gone.version.as_ref() == all_versions.last(), "{gone:?}");
    ensure!(annotation().await?.is_none() && versions().await?.len() == 4);
    patched(&space, "shop", &json!({"spec": {"secretRetentionSeconds": 1}})).await?;
    // The current and the previous one stay.
    let few = async || {
        let versions = versions().await.ok()?;
        (versions.len() == 2 && all_versions[2..].iter().all(|version| versions.contains(version))).then_some(())
    };
    if let Err(error) = eventually(WAIT_TIMEOUT, "older ones are deleted", few).await {
        let config = space.api::<VersionedConfig>().get("shop").await?;
        return Err(error.context(format!("of {all_versions:?} {:?} are left: {config:?}", versions().await?)));
    }
    let notice = annotation().await?.context("nothing is said")?;
    ensure!(notice.ends_with(&all_versions[3]), "{notice}");
    bao.put("shop", &["pin=5"])?;
    read_again(&space.api()).await?;
    let next = wait_until_current(&space, "shop", all_versions.last().map(String::as_str)).await?;
    eventually(WAIT_TIMEOUT, "nothing goes", async || annotation().await.ok()?.is_none().then_some(())).await?;
    let status = until(&space, "shop", "it is back", |status| status.gone_time.is_none()).await?;
    ensure!(status.version.context("no version")? == next && !all_versions.contains(&next));
    Ok(())
}
