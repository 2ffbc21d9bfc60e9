//! The end of a crash loop: a version is current and every pod crashes with it at its start. `kubectl nudge
//! rollback` assigns the version before to all of them in one write, healthy or not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nudge_api::{ConfigState, VersionedConfig};
use nudge_tests::cluster::assigned::assigned;
use nudge_tests::cluster::installation::at_once;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::exposure::{nudge, ready, wait_for_status};
use crate::objects::{config, deployment, list, opted_in, shell};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Eight pods in CrashLoopBackOff, kubectl nudge rollback";
const PODS: usize = 8;

const APP: &str = r#"
    trap 'echo notified' USR1
    [ "$(cat /config/mode)" != crash ] || { echo crashes; exit 1; }
    echo "runs $(cat /config/mode)"
    while :; do sleep 0.2; done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "rollback").await?;
    let [good, crash] = ["good", "crash"].map(|mode| json!({"mode": mode}));
    home.apply(&config("loop", &[("1", good), ("2", crash)], &at_once()))?;
    let annotations = [("configs", "loop"), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    let template = opted_in("loop", &shell(&home, APP), &annotations);
    home.apply(&list([deployment(&template, i32::try_from(PODS)?)]))?;
    ready(&home, "loop", PODS).await?;
    home.activate("loop", "2").await?;
    home.wait_until_current("loop", "2").await?;
    // From here on with everything at its default.
    let default = Patch::Merge(json!({"spec": {"rollout": Value::Null}}));
    home.space.api::<VersionedConfig>().patch("loop", &PatchParams::default(), &default).await?;
    home.wait_until_current("loop", "2").await?;
    let pods = home.space.api::<Pod>();
    pods.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=loop")).await?;
    let looping = eventually(LONG_WAIT_TIMEOUT, "all pods crash again and again", async || {
        let mut listed_pods = pods.list(&ListParams::default().labels("app=loop")).await.ok()?.items;
        listed_pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        (listed_pods.len() == PODS && listed_pods.iter().all(crash_loops)).then_some(listed_pods)
    })
    .await?;

    let before =
        wait_for_status(&home, "loop", "it is current", |status| status.state() == ConfigState::Current).await?;
    let asked_at = OffsetDateTime::now_utc();
    nudge(&home, &["rollback", "loop"])?;
    let config = home.space.api::<VersionedConfig>().get("loop").await?;
    ensure!(config.spec.version.as_deref() == Some("1"), "{:?}", config.spec.version);
    let back = wait_for_status(&home, "loop", "another revision is written", |status| {
        status.internal.revision != before.internal.revision
    })
    .await?;
    let written = OffsetDateTime::now_utc();
    // The first write after the command: no pod is left on the bad version by it.
    let uid = config.uid().context("no uid")?;
    for pod in &looping {
        let version = assigned(&back, &uid, &pod.uid().context("no uid")?, "Deployment/loop", pod.labels());
        ensure!(version == Some("1"), "{} is assigned {version:?}: {back:#?}", pod.name_any());
    }
    home.wait_until_current("loop", "1").await?;
    let current = OffsetDateTime::now_utc();
    ready(&home, "loop", PODS).await?;
    let whole = OffsetDateTime::now_utc();
    let row = |what: &str, to: OffsetDateTime| -> Result<()> {
        suite.report.row(TITLE, &[what.to_owned(), seconds(Duration::try_from(to - asked_at)?), PODS.to_string()]);
        Ok(())
    };
    row("assigned the version before, in one write", written)?;
    row("their agents run it", current)?;
    row("all are Ready, after the kubelet's back-off", whole)?;
    Ok(())
}

/// Returns whether the application has ended again and again.
fn crash_loops(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.filter(|status| status.name == "app").any(|status| status.restart_count >= 2 && !status.ready)
}
