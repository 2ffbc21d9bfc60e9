//! Many changes: what a source makes stays bounded.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_tests::servers::git_content::git_content;
use serde_json::json;

use crate::config_sources::scene::{config_until, enabled, source, versions, wait_until_current};

/// Returns a number from the environment, for the long form.
fn variable(name: &str, short: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// `NUDGE_ROTATIONS=500` is the long form.
#[tokio::test]
async fn objects_and_status_stay_bounded_over_many_rotations() -> Result<()> {
    let Some(space) = enabled("rotation", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "live", "0").await? else { return Ok(()) };
    let extra_spec = json!({"debounceSeconds": 0, "minPeriodSeconds": 0});
    source(&space, "shop", &content.from, &extra_spec).await?;
    let mut last = wait_until_current(&space, "shop", None).await?;
    let (mut sizes, mut objects) = (Vec::new(), 0);
    for number in 1..=variable("NUDGE_ROTATIONS", 25) {
        content.change(&number.to_string()).await?;
        last = wait_until_current(&space, "shop", Some(&last)).await?;
        objects = objects.max(versions(&space, "shop").await?.len());
        let config = space.api::<VersionedConfig>().get("shop").await?;
        let source_object = space.api::<ConfigSource>().get("shop").await?;
        sizes.push((serde_json::to_string(&config)?.len(), serde_json::to_string(&source_object)?.len()));
    }
    // The current and the previous one, three more, and those that are being deleted.
    config_until(&space, "shop", "older ones are gone", |_, status| status.versions.len() <= 5).await?;
    let status = space.api::<VersionedConfig>().get("shop").await?.status.unwrap_or_default();
    ensure!(status.internal.retired.is_empty(), "{:?}", status.internal.retired);
    let most = |of: fn(&(usize, usize)) -> usize| sizes.iter().map(of).max().unwrap_or_default();
    let events = space.api::<Event>().list_metadata(&ListParams::default()).await?.items.len();
    eprintln!(
        "{} rotations: {events} Events, at most {objects} objects, {} bytes of config and {} of source",
        sizes.len(),
        most(|it| it.0),
        most(|it| it.1)
    );
    ensure!(objects <= 12 && most(|it| it.0) < 16 * 1024 && most(|it| it.1) < 8 * 1024, "{objects} objects, {sizes:?}");
    Ok(())
}
