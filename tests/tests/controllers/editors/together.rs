//! Texts of several configs of one pod that change together.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use nudge_api::{ConditionType, Release, VersionedConfig};
use nudge_tests::cluster::installation::injected_pod;
use nudge_tests::{Installation, serving};
use serde_json::json;

use super::followed::{WAIT_TIMEOUT, reason};

/// The configs, in the order in which the pod names them.
const CONFIGS: [&str; 3] = ["zeta", "mid", "alpha"];

/// Returns the key of the config. The application of the pod reads `number`.
fn key(config: &'static str) -> &'static str {
    if config == CONFIGS[0] { "number" } else { config }
}

#[tokio::test]
async fn texts_that_change_together_go_in_the_order_of_the_configs_of_their_pod() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("together").await?;
    let rollout = json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 2});
    for name in CONFIGS {
        space.create_object::<ConfigMap>(json!({"metadata": {"name": name}, "data": {key(name): "one"}})).await?;
        let spec = json!({"objects": ["ConfigMap"], "rollout": rollout});
        space.create_object::<VersionedConfig>(json!({"metadata": {"name": name}, "spec": spec})).await?;
    }
    let wait_for = async |what: &str, name: &str, is_moved: bool| {
        let is_expected = |config: &VersionedConfig| {
            config.status.as_ref().is_some_and(|status| {
                let is_at_rest = status.rollout.stage.is_none() && status.desired_version == status.current_version;
                let moves = status.releases.iter().filter(|release| release.from_version.is_some()).count();
                is_at_rest && status.current_version.is_some() && moves == usize::from(is_moved)
            })
        };
        space.object_until(WAIT_TIMEOUT, name, what, is_expected).await?.status.context("no status")
    };
    for name in CONFIGS {
        wait_for("it has a current version", name, false).await?;
    }
    let object = injected_pod(&space, "web", &CONFIGS.join(",")).await?;
    let _pod = serving(&space, replica.hub, &object, ("zeta,mid,alpha", None), env!("CARGO_BIN_EXE_app")).await?;
    for name in CONFIGS {
        let runs = |config: &VersionedConfig| config.status.as_ref().is_some_and(|status| status.pods.summary == "1/1");
        space.object_until(Duration::from_mins(1), name, "the pod runs it", runs).await?;
    }
    for name in CONFIGS.into_iter().rev() {
        let edit = Patch::Merge(json!({"data": {key(name): "two"}}));
        space.api::<ConfigMap>().patch(name, &PatchParams::default(), &edit).await?;
    }
    let mut last: Option<Release> = None;
    for name in CONFIGS {
        let status = wait_for("its text is current", name, true).await?;
        ensure!(reason(&status, ConditionType::Ready) == "Current", "{name}: {status:#?}");
        let release = status.releases.last().context("no release")?;
        let previous_end = last.as_ref().and_then(|last| last.end_time.clone());
        ensure!(previous_end.is_none_or(|end| end.0 <= release.start_time.0), "{name}: {last:#?} {release:#?}");
        last = Some(release.clone());
    }
    Ok(())
}
