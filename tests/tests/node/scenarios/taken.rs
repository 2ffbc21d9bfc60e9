//! Containers with an agent that take a version only by a restart: one reads variables, one a file by `subPath`, and
//! one what an init container has rendered. No version is current while a process has what was before, which the memory
//! of the processes shows. One container is left alone, and keeps what it has.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_api::VersionedConfigStatus;
use serde_json::{Value, json};

use super::exposure::{ready, wait_for_status};
use super::mounted::moves_mounts;
use crate::objects::{deployment, list, opted_in, plain, published_config, shell};
use crate::space::ScenarioNamespace;
use crate::suite::Suite;

const APPS: [&str; 4] = ["variables", "part", "rendered", "alone"];
/// Reads what it can at its start, keeps it in its arguments, and handles the signal.
const APP: &str = r#"
    has=$MODE; [ ! -f /etc/part ] || has=$(cat /etc/part); [ ! -f /out/mode ] || has=$(cat /out/mode)
    exec sh -c 'trap : HUP; trap "exit 0" TERM; while :; do sleep 0.1; done' "has-$has""#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "taken").await?;
    if !moves_mounts(&home).await? {
        return Ok(());
    }
    let [one, two, three] = ["one", "two", "three"].map(|mode| json!({"mode": mode}));
    let rollout = json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0});
    home.apply(&list([plain("taken", &one)]))?;
    home.apply(&published_config("taken", &[("1", one), ("2", two), ("3", three)], &rollout))?;
    home.wait_until_current("taken", "1").await?;
    home.apply(&list(APPS.map(|name| deployment(&template(&home, name), 1))))?;
    for name in APPS {
        ready(&home, name, 1).await?;
        ensure!(process(&home, name).await? == "has-one", "{name} did not start with version 1");
    }

    // Nobody may restart the Deployments.
    home.activate("taken", "2").await?;
    let is_held = |status: &VersionedConfigStatus| {
        let mut stalled = status.conditions.iter().filter(|condition| condition.type_ == "Stalled");
        stalled.any(|condition| condition.reason == "NotRestarted")
    };
    let status = wait_for_status(&home, "taken", "version 2 waits for restarts", is_held).await?;
    ensure!(status.current_version.as_deref() == Some("1"), "{status:#?}");
    ensure!(status.pods.left_alone == ["Deployment/alone: app"], "{status:#?}");
    for name in APPS {
        ensure!(process(&home, name).await? == "has-one", "{name} has another version without a restart");
    }

    home.kubectl(&["apply", "-k", "deploy/namespace/restart"])?;
    home.wait_until_current("taken", "2").await?;
    all_have(&home, "has-two").await?;
    home.activate("taken", "3").await?;
    home.wait_until_current("taken", "3").await?;
    all_have(&home, "has-three").await
}

/// Checks at once that each process has this version, but the one that is left alone.
async fn all_have(home: &ScenarioNamespace<'_>, expected: &str) -> Result<()> {
    for name in APPS {
        let expected = if name == "alone" { "has-one" } else { expected };
        let has = process(home, name).await?;
        ensure!(has == expected, "Current, and the process of {name} {has}");
    }
    Ok(())
}

/// Returns what the process of the one pod that is not being deleted was started with.
async fn process(home: &ScenarioNamespace<'_>, name: &str) -> Result<String> {
    let pods = home.space.api::<Pod>().list(&ListParams::default().labels(&format!("app={name}"))).await?.items;
    let mut living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let pod = living.next().with_context(|| format!("{name} has no pod"))?;
    // The processes of the pod are shared, so that the agent can signal them.
    let script = r#"for it in /proc/[0-9]*/cmdline; do tr '\0' '\n' < "$it" | grep '^has-' && exit; done"#;
    let has = home.kubectl(&["exec", &pod.name_any(), "-c", "app", "--", "sh", "-c", script])?;
    Ok(has.trim().to_owned())
}

fn template(home: &ScenarioNamespace<'_>, name: &str) -> Value {
    let mut app = shell(home, APP);
    app["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let notify = if name == "alone" { "none" } else { "SIGHUP" };
    match name {
        "part" => {
            app["volumeMounts"] = json!([{"name": "conf", "mountPath": "/etc/part", "subPath": "mode"}]);
        }
        "rendered" => app["volumeMounts"] = json!([{"name": "work", "mountPath": "/out"}]),
        _ => {
            let key = json!({"configMapKeyRef": {"name": "taken", "key": "mode"}});
            app["env"] = json!([{"name": "MODE", "valueFrom": key}]);
        }
    }
    let mut template = opted_in(name, &app, &[("configs", "taken"), ("notify", notify)]);
    template["spec"]["volumes"] =
        json!([{"name": "conf", "configMap": {"name": "taken"}}, {"name": "work", "emptyDir": {}}]);
    if name == "rendered" {
        let mut render = shell(home, "cat /in/mode > /out/mode");
        render["name"] = json!("render");
        render["volumeMounts"] = json!([{"name": "conf", "mountPath": "/in"}, {"name": "work", "mountPath": "/out"}]);
        template["spec"]["initContainers"] = json!([render]);
    }
    template
}
