//! A Deployment that knows nothing of Nudge and takes a password from a Secret by `secretKeyRef` is restarted with the
//! new value, and with the old one when somebody goes back. The Secret has the type of its version.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{ListParams, LogParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::at_once;
use serde_json::json;
use time::OffsetDateTime;

use crate::objects::{deployment, list, secret_config, shell, template};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Two pods with a password from a published Secret, from spec.version";
const PODS: usize = 2;

/// Says which of the values it has, by its beginning, and never the value.
const APP: &str = r#"echo "has ${PASSWORD%%-*}"; exec sleep 86400"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "published-secrets").await?;
    for role in ["secrets", "publish-secrets", "restart"] {
        home.kubectl(&["apply", "-k", &format!("deploy/namespace/{role}")])?;
    }
    let [one, two] = ["first-Vq4tW9", "second-Hn2kP7"].map(|value| json!({"password": value}));
    home.apply(&secret_config("login", &[("1", one), ("2", two)], &at_once()))?;
    let objects = Patch::Merge(json!({"spec": {"objects": ["ConfigMap", "Secret"]}}));
    home.space.api::<VersionedConfig>().patch("login", &PatchParams::default(), &objects).await?;
    wait_until_published(&home, "1").await?;
    let mut container = shell(&home, APP);
    container["env"] =
        json!([{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]);
    home.apply(&list([deployment(&template("reader", &container), i32::try_from(PODS)?)]))?;
    wait_for_pods(&home, "first").await?;
    for (version, value) in [("2", "second"), ("1", "first")] {
        home.activate("login", version).await?;
        let activated = OffsetDateTime::now_utc();
        wait_for_pods(&home, value).await?;
        let time = Duration::try_from(OffsetDateTime::now_utc() - activated)?;
        home.wait_until_current("login", version).await?;
        wait_until_published(&home, version).await?;
        suite.report.row(TITLE, &[format!("all pods have the value of version {version}"), seconds(time)]);
    }
    Ok(())
}

/// Waits until the Secret is published with this version.
async fn wait_until_published(home: &ScenarioNamespace<'_>, version: &str) -> Result<()> {
    let configs = home.space.api::<VersionedConfig>();
    eventually(LONG_WAIT_TIMEOUT, &format!("version {version} is published"), async || {
        let status = configs.get("login").await.ok()?.status?;
        (status.published_secret_version.as_deref() == Some(version)).then_some(())
    })
    .await?;
    let secret = home.space.api::<Secret>().get("login").await?;
    ensure!(secret.type_.as_deref() == Some("Opaque"), "it has type {:?}", secret.type_);
    Ok(())
}

/// Waits until the Deployment's pods have this value and are available, and all others are terminating.
async fn wait_for_pods(home: &ScenarioNamespace<'_>, value: &str) -> Result<()> {
    let (pods, deployments) = (home.space.api::<Pod>(), home.space.api::<Deployment>());
    let text = format!("has {value}");
    eventually(LONG_WAIT_TIMEOUT, &format!("all pods say {text}"), async || {
        let available = deployments.get("reader").await.ok()?.status?.available_replicas.unwrap_or_default();
        let mut listed_pods = pods.list(&ListParams::default()).await.ok()?.items;
        listed_pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        if usize::try_from(available).ok()? != PODS || listed_pods.len() != PODS || !listed_pods.iter().all(is_ready) {
            return None;
        }
        for pod in &listed_pods {
            let message = pods.logs(&pod.name_any(), &LogParams::default()).await.ok()?;
            if !message.contains(&text) {
                return None;
            }
        }
        Some(())
    })
    .await
}
