//! A config that follows the text of its object, with pods: real agents and applications, that no kubelet runs.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hyper::StatusCode;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use nudge_api::{ConditionType, PartKind, Release, VersionedConfig, VersionedConfigStatus, find_condition};
use nudge_tests::cluster::installation::{ACCOUNT, injected_pod};
use nudge_tests::cluster::{Cluster, TestNamespace};
use nudge_tests::{Answer, HookServer, Pod, serving};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The time of two moves, which begin a minute apart, on a busy machine.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_mins(3);

/// The beginning of a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Somebody writes it, with an object of this kind.
    Hand(PartKind),
    /// Its namespace makes it of the ConfigMap.
    Baseline,
}

/// Returns `spec.rollout` of a move that stands still in the middle.
pub(super) fn paused() -> Value {
    json!({"steps": [{"pods": 1, "pauseSeconds": 3600}, {"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0})
}

/// A config, its object and its pods.
pub(super) struct Followed<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) space: TestNamespace,
    pub(super) name: &'static str,
    /// The server that answers whether the applications take a version.
    check: HookServer,
    pods: Vec<Pod>,
}

impl<'a> Followed<'a> {
    /// Returns the config of this name, which does not exist yet if its namespace makes it.
    pub(super) async fn new(
        cluster: &'a Cluster,
        space: TestNamespace,
        name: &'static str,
        origin: Origin,
    ) -> Result<Self> {
        if let Origin::Hand(kind) = origin {
            let spec = json!({"objects": [kind], "rollout": paused()});
            space.create_object::<VersionedConfig>(json!({"metadata": {"name": name}, "spec": spec})).await?;
        }
        Ok(Self { cluster, space, name, check: HookServer::willing().await?, pods: Vec::new() })
    }

    /// Waits for the first version, and starts two pods that run it.
    pub(super) async fn start(&mut self, hub: SocketAddr) -> Result<()> {
        self.wait_for("there is a current version", |status| status.current_version.is_some()).await?;
        self.set(json!({"rollout": paused()})).await?;
        for number in 1..=2 {
            let pod = injected_pod(&self.space, &format!("{}-{number}", self.name), self.name).await?;
            let asked = (self.name, Some(self.check.url()));
            self.pods.push(serving(&self.space, hub, &pod, asked, env!("CARGO_BIN_EXE_app")).await?);
        }
        self.wait_for("both pods run it", |status| status.pods.summary == "2/2").await?;
        Ok(())
    }

    /// Lets the applications refuse every version that they do not run.
    pub(super) fn refuse(&self) {
        self.check.answer(Answer::Text(StatusCode::UNPROCESSABLE_ENTITY, "not today".to_owned()));
    }

    /// Lets them take every version.
    pub(super) fn agree(&self) {
        self.check.answer(Answer::Status(StatusCode::NO_CONTENT));
    }

    /// Changes the spec.
    pub(super) async fn set(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.space.api::<VersionedConfig>().patch(self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(super) async fn wait_for(
        &self,
        what: &str,
        expected: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        let is_expected = |config: &VersionedConfig| config.status.as_ref().is_some_and(&expected);
        let config = self.space.object_until(WAIT_TIMEOUT, self.name, what, is_expected).await;
        config.with_context(|| format!("config {}", self.name))?.status.context("no status")
    }

    /// Waits until a move to another version stands in the middle: one pod runs it. Returns the version.
    pub(super) async fn wait_for_first_step(&self) -> Result<String> {
        let is_stepped = |status: &VersionedConfigStatus| {
            status.rollout.step == 1 && status.pods.summary == "1/2" && status.desired_version == status.target_version
        };
        self.wait_for("one pod runs the text", is_stepped).await?.target_version.context("no target")
    }

    /// Waits until the version is current, and both pods run it.
    pub(super) async fn wait_until_current(&self, value: &str) -> Result<VersionedConfigStatus> {
        let is_current = |status: &VersionedConfigStatus| {
            let is_proven = status.current_version == status.desired_version && status.rollout.stage.is_none();
            is_proven && status.pods.summary == "2/2" && self.pods.iter().all(|pod| serves(pod, value))
        };
        self.wait_for(&format!("{value:?} is current"), is_current).await
    }

    /// Fails unless this value is the text of the ConfigMap, and Nudge has written nothing of it but the label.
    pub(super) async fn check_text(&self, value: &str) -> Result<()> {
        let map = self.space.api::<ConfigMap>().get(self.name).await?;
        let text = map.data.as_ref().and_then(|data| data.get("number"));
        ensure!(text.is_some_and(|text| text == value), "{}: {map:#?}", self.name);
        check_fields(&map)?;
        let account = format!(":{ACCOUNT}\"");
        let is_write = |event: &Value| {
            let (object, verb) = (&event["objectRef"], event["verb"].as_str().unwrap_or_default());
            object["resource"] == "configmaps"
                && object["name"] == self.name
                && ["create", "update", "delete"].contains(&verb)
                && event["user"].to_string().contains(&account)
        };
        let writes = self.cluster.audit(&self.space.name)?.into_iter().filter(is_write).count();
        ensure!(writes == 0, "Nudge has written {} {writes} times", self.name);
        Ok(())
    }

    /// Returns the application's view of every pod.
    pub(super) fn serves(&self, value: &str) -> bool {
        self.pods.iter().all(|pod| serves(pod, value))
    }
}

fn serves(pod: &Pod, value: &str) -> bool {
    std::fs::read_to_string(pod.path("files").join("number")).is_ok_and(|number| number == value)
}

/// Fails if Nudge manages anything of the object but the label by which it is followed.
pub(super) fn check_fields<K>(object: &K) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned,
{
    let entries = object.meta().managed_fields.iter().flatten();
    for entry in entries.filter(|entry| entry.manager.as_deref().is_some_and(|manager| manager.starts_with("nudge"))) {
        let mut fields = entry.fields_v1.clone().context("no fields")?.0;
        if let Some(labels) = fields.pointer_mut("/f:metadata/f:labels").and_then(Value::as_object_mut) {
            labels.retain(|label, _| ![".", "f:nudge.dev/follows"].contains(&label.as_str()));
        }
        ensure!(fields == json!({"f:metadata": {"f:labels": {}}}), "{entry:#?}");
    }
    Ok(())
}

/// Returns the last release of this version.
pub(super) fn last_release<'a>(status: &'a VersionedConfigStatus, version: &str) -> Option<&'a Release> {
    status.releases.iter().rev().find(|release| release.version == version)
}

/// Returns the reason of a condition.
pub(super) fn reason(status: &VersionedConfigStatus, kind: ConditionType) -> &str {
    find_condition(&status.conditions, kind).map_or("", |condition| &condition.reason)
}
