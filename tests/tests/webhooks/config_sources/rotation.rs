//! Many changes: what a source makes stays bounded.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use nudge_api::{ConfigSource, VersionedConfig, VersionedConfigStatus};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::config_sources::scene::{changes, config_until, enabled, live, source, versions, wait_until_current};

/// Returns a number from the environment, for the long form.
fn variable(name: &str, short: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// `NUDGE_FLOOD_SECONDS=60` is the long form.
#[tokio::test]
async fn an_object_that_never_stays_becomes_few_versions() -> Result<()> {
    let Some(space) = enabled("flood", false).await? else { return Ok(()) };
    live(&space, "live", "0").await?;
    // It is never quiet for this long: a version comes after ten times that.
    let extra_spec = json!({"debounceSeconds": 1, "minPeriodSeconds": 0, "historyLimit": 40});
    source(&space, "shop", &json!({"configMap": {"name": "live"}}), &extra_spec).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    let seconds = variable("NUDGE_FLOOD_SECONDS", 12);
    let (began, mut ticks) = (Instant::now(), interval(Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut written, mut writes) = (0_u64, 0_u64);
    while began.elapsed() < Duration::from_secs(seconds) {
        ticks.tick().await;
        written += 1;
        changes(&space, "live", &written.to_string()).await?;
        if written % 10 == 0 {
            writes = space
                .api::<ConfigSource>()
                .get("shop")
                .await?
                .metadata
                .managed_fields
                .map_or(0, |all| all.len() as u64);
        }
    }
    let last = wait_until_current(&space, "shop", Some(&first)).await?;
    let last_is_current =
        |_: &VersionedConfig, status: &VersionedConfigStatus| status.current_version.as_ref() == Some(&last);
    config_until(&space, "shop", "the last content is current", last_is_current).await?;
    let version_count = versions(&space, "shop").await?.len();
    let elapsed = began.elapsed();
    eprintln!("{written} changes in {elapsed:?}: {version_count} versions");
    // At most one for each quiet period and for each ten of them, and the first.
    let most = elapsed.as_secs() + 2;
    ensure!(
        (2..=most).contains(&(version_count as u64)) && (version_count as u64) < written / 2,
        "{version_count} of {written}"
    );
    ensure!(writes < 10, "{writes} managers");
    Ok(())
}

/// `NUDGE_ROTATIONS=500` is the long form.
#[tokio::test]
async fn objects_and_status_stay_bounded_over_many_rotations() -> Result<()> {
    let Some(space) = enabled("rotation", false).await? else { return Ok(()) };
    live(&space, "live", "0").await?;
    let extra_spec = json!({"debounceSeconds": 0, "minPeriodSeconds": 0});
    source(&space, "shop", &json!({"configMap": {"name": "live"}}), &extra_spec).await?;
    let mut last = wait_until_current(&space, "shop", None).await?;
    let (mut sizes, mut objects) = (Vec::new(), 0);
    for number in 1..=variable("NUDGE_ROTATIONS", 25) {
        changes(&space, "live", &number.to_string()).await?;
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
