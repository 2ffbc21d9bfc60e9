//! A Deployment that mounts the ConfigMap and the Secret of a config, as Deployments do, and says how it is notified,
//! and nothing else. Its processes read the files of the version that is assigned to their pod when they are notified,
//! before the objects are published. A version that lacks a key that a volume needs stops at the first pod.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Volume};
use kube::ResourceExt as _;
use nudge_api::VersionedConfigStatus;
use nudge_tests::{eventually, tools};
use serde_json::{Value, json};

use super::exposure::{ready, wait_for_status};
use crate::install;
use crate::objects::{deployment, list, opted_in, plain, shell};
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, containers};
use crate::suite::Suite;

const PODS: usize = 3;
/// The first server with native sidecars (KEP-753).
const SERVER: u32 = 29;

/// Says what it reads, at its start and when it is notified.
const APP: &str = r#"
    says() {
        echo "has $(cat /etc/app/mode), $(cut -d- -f1 /keys/pin), $(cat /etc/parts/conf.d/extra), \
$(stat -Lc %a /keys/pin), $(readlink /etc/app/mode), $(ls -d /etc/app/cache)"
    }
    trap says HUP; trap 'exit 0' TERM; says
    while :; do sleep 0.1; done"#;

/// What it says with this version's values.
fn line(mode: &str, pin: &str, extra: &str) -> String {
    format!("has {mode}, {pin}, {extra}, 400, ..data/mode, /etc/app/cache")
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "mounted").await?;
    if !moves_mounts(&home).await? {
        return Ok(());
    }
    serve_secrets(&home)?;
    home.apply(&list(objects()))?;
    home.wait_until_current("mounted", "1").await?;
    let is_published = |status: &VersionedConfigStatus| status.published_secret_version.as_deref() == Some("1");
    wait_for_status(&home, "mounted", "the Secret is published", is_published).await?;
    home.apply(&list([deployment(&template(&home), i32::try_from(PODS)?)]))?;
    let before = moved_pods(&home, "mounted", PODS).await?;
    for pod in &before {
        says(&home, pod, &line("one", "first", "more")).await?;
    }

    home.activate("mounted", "2").await?;
    let second = line("two", "second", "other");
    eventually(LONG_WAIT_TIMEOUT, "a pod reads version 2", async || {
        before.iter().find(|pod| has_said(&home, pod, &second)).map(drop)
    })
    .await?;
    let published = home.space.api::<ConfigMap>().get("mounted").await?;
    let mode = published.data.as_ref().and_then(|data| data.get("mode")).context("no key mode")?;
    ensure!(mode == "one", "the ConfigMap was published before all pods had the version: {mode}");
    home.wait_until_current("mounted", "2").await?;
    for pod in &before {
        says(&home, pod, &second).await?;
    }

    home.activate("mounted", "3").await?;
    let failed = |status: &VersionedConfigStatus| status.rollout.failure.is_some();
    let status = wait_for_status(&home, "mounted", "version 3 has failed", failed).await?;
    let message = status.rollout.failure.map(|failure| failure.message).unwrap_or_default();
    ensure!(message.contains("volume parts of this pod needs key extra of ConfigMap mounted"), "{message}");
    ensure!(status.current_version.as_deref() == Some("2"), "{:?} is current", status.current_version);
    let after = ready(&home, "mounted", PODS).await?;
    let uids = |pods: &[Pod]| pods.iter().filter_map(Pod::uid).collect::<BTreeSet<_>>();
    ensure!(uids(&before) == uids(&after), "a pod is another one");
    for pod in &after {
        says(&home, pod, &second).await?;
        ensure!(containers(pod).iter().all(|(.., restarts)| *restarts == 0), "a container was started again");
    }
    Ok(())
}

/// The config, and three versions of a ConfigMap and a Secret each. The last one lacks a key.
fn objects() -> Vec<Value> {
    let versions = [
        ("1", json!({"mode": "one", "extra": "more"}), "first-Vq4tW9"),
        ("2", json!({"mode": "two", "extra": "other"}), "second-Hn2kP7"),
        ("3", json!({"mode": "three"}), "third-Kd8sB3"),
    ];
    let meta = |version: &str, part: &str| {
        let labels = json!({"nudge.dev/config": "mounted", "nudge.dev/version": version, "nudge.dev/part": part});
        json!({"name": format!("mounted-{version}"), "labels": labels, "annotations": {"nudge.dev/parts": "2"}})
    };
    let parts = versions.iter().flat_map(|(version, data, pin)| {
        [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(version, "1"), "immutable": true, "data": data}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta(version, "2"), "immutable": true,
                "stringData": {"pin": pin}}),
        ]
    });
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "mounted"},
        "spec": {
            "version": "1", "objects": ["ConfigMap", "Secret"],
            "rollout": {"steps": [{"pods": 1}, {"pods": "100%"}], "minReadySeconds": 5, "bakeSeconds": 0},
        },
    });
    parts.chain([plain("mounted", &versions[0].1), config]).collect()
}

fn template(home: &ScenarioNamespace<'_>) -> Value {
    let mut app = shell(home, APP);
    app["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    app["volumeMounts"] = json!([
        {"name": "conf", "mountPath": "/etc/app"},
        {"name": "cache", "mountPath": "/etc/app/cache"},
        {"name": "keys", "mountPath": "/keys"},
        {"name": "parts", "mountPath": "/etc/parts"},
    ]);
    let mut template = opted_in("mounted", &app, &[("configs", "mounted"), ("notify", "SIGHUP")]);
    let items = json!([{"key": "extra", "path": "conf.d/extra"}]);
    template["spec"]["volumes"] = json!([
        {"name": "conf", "configMap": {"name": "mounted"}},
        {"name": "parts", "configMap": {"name": "mounted", "items": items}},
        // The kubelet's file would be root's alone.
        {"name": "keys", "secret": {"secretName": "mounted", "defaultMode": 0o400}},
        {"name": "cache", "emptyDir": {}},
    ]);
    template
}

/// Returns whether mounts move on the server, or says why not.
pub(super) async fn moves_mounts(home: &ScenarioNamespace<'_>) -> Result<bool> {
    let server = install::minor(&home.place.client().await?).await?;
    if server < SERVER {
        tools::skipped(&format!("no mounts that move: the server is 1.{server}, and they need 1.{SERVER}"));
    }
    Ok(server >= SERVER)
}

/// Lets Nudge serve Secrets of the namespace, and publish them.
pub(super) fn serve_secrets(home: &ScenarioNamespace<'_>) -> Result<()> {
    for role in ["secrets", "publish-secrets"] {
        home.kubectl(&["apply", "-k", &format!("deploy/namespace/{role}")])?;
    }
    Ok(())
}

/// Returns the pods of a Deployment once no container but the agent mounts a ConfigMap or Secret. Each replica of
/// admission learns by itself that it may read Secrets here.
pub(super) async fn moved_pods(home: &ScenarioNamespace<'_>, name: &str, count: usize) -> Result<Vec<Pod>> {
    eventually(LONG_WAIT_TIMEOUT, &format!("the mounts of {name} move"), async || {
        let pods = ready(home, name, count).await.ok()?;
        if pods.iter().all(has_moved_mounts) {
            return Some(pods);
        }
        let deployment = format!("deployment/{name}");
        home.kubectl(&["rollout", "restart", &deployment]).ok()?;
        home.kubectl(&["rollout", "status", &deployment, "--timeout=60s"]).ok()?;
        None
    })
    .await
}

fn has_moved_mounts(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is_of_object =
        |volume: &&Volume| volume.config_map.is_some() || volume.secret.is_some() || volume.projected.is_some();
    let objects: BTreeSet<_> =
        spec.volumes.iter().flatten().filter(is_of_object).map(|volume| volume.name.as_str()).collect();
    let mut mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    !mounts.any(|mount| objects.contains(mount.name.as_str()))
}

fn has_said(home: &ScenarioNamespace<'_>, pod: &Pod, line: &str) -> bool {
    let log = home.kubectl(&["logs", &pod.name_any(), "-c", "app"]);
    log.is_ok_and(|log| log.lines().last() == Some(line))
}

/// Waits until this is the last line of the pod's log.
async fn says(home: &ScenarioNamespace<'_>, pod: &Pod, line: &str) -> Result<()> {
    eventually(LONG_WAIT_TIMEOUT, &format!("pod {} says {line:?}", pod.name_any()), async || {
        has_said(home, pod, line).then_some(())
    })
    .await
}
