//! A Deployment that mounts a ConfigMap, and an edit of that ConfigMap, with the default settings of a rollout: the
//! edit is a version that goes out in steps, without a restart and without a second writer. A bad edit goes back, and
//! its correction follows.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use nudge_api::VersionedConfigStatus;
use nudge_tests::eventually;
use serde_json::{Value, json};

use super::exposure::{nudge, ready, wait_for_status};
use super::mounted::moves_mounts;
use crate::objects::{deployment, list, opted_in, shell};
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, containers};
use crate::suite::Suite;

const PODS: usize = 3;

/// Says what it reads, at its start and when it is notified. It ends if the text is bad.
const APP: &str = r#"
    says() { echo "has $(cat /etc/app/mode)"; grep -q bad /etc/app/mode && exit 1; }
    trap says HUP; trap 'exit 0' TERM; says
    while :; do sleep 0.1; done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "edited").await?;
    if !moves_mounts(&home).await? {
        return Ok(());
    }
    nudge(&home, &["enable", &home.space.name, "--baseline"])?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"mode": "one"}, "metadata": {"name": "web"}});
    home.apply(&list([map, deployment(&template(&home), i32::try_from(PODS)?)]))?;
    let before = ready(&home, "web", PODS).await?;
    home.wait_until_current("web", "1.0.0").await?;
    for pod in &before {
        says(&home, pod, "one").await?;
    }

    edit(&home, "two")?;
    let status = wait_until_current(&home, "two").await?;
    for pod in &before {
        says(&home, pod, "two").await?;
    }
    let second = status.current_version.clone();
    ensure!(status.desired_version == second && status.published_version == second, "{status:#?}");

    edit(&home, "bad")?;
    let failed = |status: &VersionedConfigStatus| status.rollout.failure.is_some() && status.rollout.stage.is_none();
    let status = wait_for_status(&home, "web", "the bad text has failed", failed).await?;
    ensure!(status.current_version == second && status.desired_version != second, "{status:#?}");
    ensure!(text(&home).await? == "bad", "somebody has written the text");
    let after = ready(&home, "web", PODS).await?;
    let harmed = after.iter().filter(|pod| containers(pod).iter().any(|(.., restarts)| *restarts > 0)).count();
    ensure!(harmed == 1, "{harmed} pods had the bad text");

    edit(&home, "three")?;
    wait_until_current(&home, "three").await?;
    let after = ready(&home, "web", PODS).await?;
    let uids = |pods: &[Pod]| pods.iter().filter_map(Pod::uid).collect::<BTreeSet<_>>();
    ensure!(uids(&before) == uids(&after), "a pod is another one");
    for pod in &after {
        says(&home, pod, "three").await?;
    }
    Ok(())
}

/// Edits the text as a user does.
fn edit(home: &ScenarioNamespace<'_>, mode: &str) -> Result<()> {
    let patch = json!({"data": {"mode": mode}}).to_string();
    home.kubectl(&["patch", "configmap", "web", "--type=merge", "-p", &patch]).map(drop)
}

async fn text(home: &ScenarioNamespace<'_>) -> Result<String> {
    let map = home.space.api::<ConfigMap>().get("web").await?;
    Ok(map.data.and_then(|mut data| data.remove("mode")).unwrap_or_default())
}

/// Waits until the text, which has this value, is current. Nobody but its author has written it.
async fn wait_until_current(home: &ScenarioNamespace<'_>, mode: &str) -> Result<VersionedConfigStatus> {
    let is_current = |status: &VersionedConfigStatus| {
        let version = status.desired_version.as_deref().filter(|version| version.starts_with("txt-"));
        let is_proven = version.is_some() && status.current_version.as_deref() == version;
        is_proven && status.published_version.as_deref() == version && status.rollout.failure.is_none()
    };
    let status = wait_for_status(home, "web", &format!("the text {mode:?} is current"), is_current).await?;
    ensure!(text(home).await? == mode, "somebody has written the text");
    Ok(status)
}

fn template(home: &ScenarioNamespace<'_>) -> Value {
    let mut app = shell(home, APP);
    app["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    app["volumeMounts"] = json!([{"name": "conf", "mountPath": "/etc/app"}]);
    let mut template = opted_in("web", &app, &[("notify", "SIGHUP")]);
    template["spec"]["volumes"] = json!([{"name": "conf", "configMap": {"name": "web"}}]);
    template
}

/// Waits until this is the last line of the pod's log.
async fn says(home: &ScenarioNamespace<'_>, pod: &Pod, mode: &str) -> Result<()> {
    let line = format!("has {mode}");
    eventually(LONG_WAIT_TIMEOUT, &format!("pod {} says {line:?}", pod.name_any()), async || {
        let log = home.kubectl(&["logs", &pod.name_any(), "-c", "app"]);
        log.is_ok_and(|log| log.lines().last() == Some(&line)).then_some(())
    })
    .await
}
