//! A config at version 1 with pods of two Deployments, whose applications are under load.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use nudge_api::{ConfigState, RolloutAnalysis, VersionedConfig, VersionedConfigStatus};
use nudge_core::analysis::is_rehearsal;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{create_part, injected_pod_with};
use nudge_tests::{Installation, Pod, Replica, ReplicaOptions, eventually, serving};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::analysis::load::Load;

/// How long anything may take on a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(2);

/// The progress deadline, in seconds: what can't be measured holds for longer, and nothing goes back.
pub(crate) const DEADLINE_SECONDS: u64 = 10;

/// Returns the control plane with its webhooks, and the role analysis.
pub(crate) async fn shared() -> Result<Option<&'static (Installation<'static>, Replica)>> {
    static SHARED: OnceCell<Replica> = OnceCell::const_new();
    let Some(both) = Installation::shared_with_webhooks().await? else { return Ok(None) };
    SHARED
        .get_or_try_init(async || {
            both.0.apply_analysis().await?;
            both.0.analysis(&ReplicaOptions::default()).await
        })
        .await?;
    Ok(Some(both))
}

/// A config with its pods.
pub(crate) struct Scene {
    pub(crate) space: TestNamespace,
    pub(crate) load: Load,
    pods: Vec<Pod>,
    pub(crate) names: Vec<String>,
}

impl Scene {
    pub(crate) async fn new((installation, replica): &(Installation<'_>, Replica), pods: usize) -> Result<Self> {
        let space = installation.enabled("analysis").await?;
        let rollout = json!({
            "steps": [{"pods": 1}, {"pods": "50%"}], "minReadySeconds": 1, "bakeSeconds": 0, "ackTimeoutSeconds": 60,
            "progressDeadlineSeconds": DEADLINE_SECONDS,
        });
        let config = json!({"metadata": {"name": "shop"}, "spec": {"version": "1", "rollout": rollout}});
        space.create_object::<VersionedConfig>(config).await?;
        let mut scene = Self { space, load: Load::start().await?, pods: Vec::new(), names: Vec::new() };
        scene.make("1").await?;
        scene.wait_until_current("1").await?;
        for number in 0..pods {
            scene.bear(["web", "api"][number % 2], number, replica).await?;
        }
        let description = format!("{pods}/{pods}");
        scene.wait_for_status("all pods run version 1", |status| status.pods.summary == description).await?;
        Ok(scene)
    }

    async fn bear(&mut self, deployment: &str, number: usize, replica: &Replica) -> Result<()> {
        let name = format!("{deployment}-5d59-{number}");
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-5d59"),
            "uid": format!("uid-{deployment}"), "controller": true,
        });
        let labels = json!({"pod-template-hash": "5d59", "app": deployment});
        let meta = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
        let object = injected_pod_with(&self.space, "shop", &meta, &json!({})).await?;
        let pod = serving(&self.space, replica.hub, &object, ("shop", None), env!("CARGO_BIN_EXE_app")).await?;
        self.load.add(&name, pod.path("files").join("number"));
        self.pods.push(pod);
        self.names.push(name);
        Ok(())
    }

    async fn make(&self, version: &str) -> Result<()> {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let name = format!("shop-{version}");
        let object =
            json!({"metadata": {"name": name, "labels": labels}, "immutable": true, "data": {"number": version}});
        create_part::<ConfigMap>(&self.space, object).await.map(drop)
    }

    /// Requests a version, which is made.
    pub(crate) async fn request_version(&self, version: &str) -> Result<()> {
        self.make(version).await?;
        self.set(&json!({"version": version})).await
    }

    pub(crate) async fn set(&self, spec: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates a Secret with a user and a password for these hosts.
    pub(crate) async fn secret(&self, name: &str, hosts: &str, data: &Value) -> Result<()> {
        let metadata = json!({"name": name, "annotations": {"nudge.dev/allowed-hosts": hosts}});
        self.space.create_object::<Secret>(json!({"metadata": metadata, "stringData": data})).await.map(drop)
    }

    pub(crate) async fn change_secret(&self, name: &str, data: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"stringData": data}));
        self.space.api::<Secret>().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn status(&self) -> Result<VersionedConfigStatus> {
        self.space.api::<VersionedConfig>().get("shop").await?.status.context("no status")
    }

    pub(crate) async fn wait_for_status(
        &self,
        what: &str,
        is: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        let find = async || self.status().await.ok().filter(&is);
        match eventually(WAIT_TIMEOUT, what, find).await {
            Ok(status) => Ok(status),
            Err(error) => {
                let measured = self.space.api::<RolloutAnalysis>().get_opt("shop").await?;
                Err(error.context(format!("{:#?}\n{measured:#?}", self.status().await?)))
            }
        }
    }

    pub(crate) async fn wait_until_current(&self, version: &str) -> Result<VersionedConfigStatus> {
        let description = format!("version {version} is current");
        let current = |status: &VersionedConfigStatus| {
            status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version)
        };
        self.wait_for_status(&description, current).await
    }

    /// Waits until the analysis holds the version because of this. What it says.
    pub(crate) async fn wait_until_held(&self, what: &str, says: &str) -> Result<String> {
        let held = |status: &VersionedConfigStatus| {
            ready(status).is_some_and(|(reason, message)| reason == "AnalysisInconclusive" && message.contains(says))
        };
        let status = self.wait_for_status(what, held).await?;
        Ok(ready(&status).map(|(_, message)| message.to_owned()).unwrap_or_default())
    }

    /// Returns what was measured.
    pub(crate) async fn wait_for_measurement(
        &self,
        what: &str,
        is: impl Fn(&RolloutAnalysis) -> bool,
    ) -> Result<RolloutAnalysis> {
        self.space.object_until(WAIT_TIMEOUT, "shop", what, is).await
    }

    /// Returns what was measured in a step, once each of these queries was asked in it. A rehearsal may have answers
    /// before.
    pub(crate) async fn wait_for_answers(&self, names: &[&str]) -> Result<RolloutAnalysis> {
        let are_all_answered = |object: &RolloutAnalysis| {
            let round = &object.spec.round;
            let status = object.status.as_ref().filter(|status| status.round == *round && !is_rehearsal(round));
            names.iter().all(|name| status.is_some_and(|status| status.queries.iter().any(|query| query.name == *name)))
        };
        self.wait_for_measurement("all are measured", are_all_answered).await
    }
}

/// Reason and message of the condition Ready.
pub(crate) fn ready(status: &VersionedConfigStatus) -> Option<(&str, &str)> {
    condition(status, "Ready")
}

/// Reason and message of the condition Measurable.
pub(crate) fn measurable(status: &VersionedConfigStatus) -> Option<(&str, &str)> {
    condition(status, "Measurable")
}

fn condition<'a>(status: &'a VersionedConfigStatus, kind: &str) -> Option<(&'a str, &'a str)> {
    let entry = status.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((entry.reason.as_str(), entry.message.as_str()))
}
