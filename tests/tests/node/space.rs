//! A namespace of a scenario, in which Nudge is enabled, and the pods in it.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use serde_json::{Value, json};

use crate::install;
use crate::log::Log;
use crate::place::Place;
use crate::suite::Suite;
use nudge_tests::eventually;

/// How long anything may take that a kubelet does at once, on a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
/// How long anything may take that takes a grace period or the kubelet's rounds.
pub(crate) const LONG_WAIT_TIMEOUT: Duration = Duration::from_mins(5);

/// A namespace of a scenario.
pub(crate) struct ScenarioNamespace<'a> {
    pub(crate) place: &'a Place,
    pub(crate) space: TestNamespace,
}

impl<'a> ScenarioNamespace<'a> {
    /// Returns a namespace that is enabled, on a cluster where Nudge is installed.
    pub(crate) async fn enabled(suite: &'a Suite, purpose: &str) -> Result<Self> {
        suite.installed().await?;
        let home = Self::create(suite, purpose).await?;
        install::enable(home.place, &home.space.name)?;
        Ok(home)
    }

    /// Returns a namespace.
    pub(crate) async fn create(suite: &'a Suite, purpose: &str) -> Result<Self> {
        let place = suite.place().await?;
        let name = format!("nudge-e2e-{purpose}");
        let home = Self { place, space: TestNamespace { client: place.client().await?, name } };
        home.kubectl(&["create", "namespace", &home.space.name])?;
        suite.spaces.lock().push(home.space.name.clone());
        // Pods are refused until their service account is there.
        let accounts = home.space.api::<k8s_openapi::api::core::v1::ServiceAccount>();
        eventually(WAIT_TIMEOUT, "the default service account is there", async || {
            accounts.get_opt("default").await.ok()?
        })
        .await?;
        Ok(home)
    }

    /// Runs kubectl in this namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        crate::place::succeed(self.place.command("kubectl").args(["-n", &self.space.name]).args(arguments))
    }

    /// Applies files of `examples/deploy`, with the cluster's names for their images.
    pub(crate) fn apply_examples(&self, names: &[&str]) -> Result<()> {
        for name in names {
            let file = crate::place::repository().join(format!("examples/deploy/{name}.yaml"));
            let text = std::fs::read_to_string(Path::new(&file))?;
            self.apply(&text.replace("image: nudge-", &format!("image: {}nudge-", self.place.images())))?;
        }
        Ok(())
    }

    /// Applies objects to the namespace.
    pub(crate) fn apply(&self, text: &str) -> Result<()> {
        self.apply_with(&[], text)
    }

    /// Applies objects, with more flags.
    pub(crate) fn apply_with(&self, flags: &[&str], text: &str) -> Result<()> {
        let mut command = self.place.command("kubectl");
        command.args(["-n", &self.space.name, "apply", "-f", "-"]).args(flags).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("no input")?.write_all(text.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Returns the one pod of a label that is not terminating, once it is ready.
    pub(crate) async fn ready_pod(&self, label: &str) -> Result<Pod> {
        let pods = self.space.api::<Pod>();
        let description = format!("a pod of {label} is ready");
        eventually(WAIT_TIMEOUT, &description, async || {
            let list = pods.list(&ListParams::default().labels(label)).await.ok()?;
            let mut there = list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            let pod = there.next()?;
            (there.next().is_none() && is_ready(&pod)).then_some(pod)
        })
        .await
    }

    /// Follows the log of the container `app`.
    pub(crate) async fn follow(&self, pod: &Pod) -> Result<Log> {
        Log::follow(&self.space.api(), &pod.name_any(), "app").await
    }

    /// Has the pods of a config moved at once, and watched for no longer than it takes.
    pub(crate) async fn at_once(&self, config: &str) -> Result<()> {
        self.patch_config(config, &json!({"rollout": nudge_tests::cluster::installation::at_once()})).await
    }

    /// Makes a version current: returns as soon as the API server has it.
    pub(crate) async fn activate(&self, config: &str, version: &str) -> Result<()> {
        self.patch_config(config, &json!({"version": version})).await
    }

    async fn patch_config(&self, config: &str, spec: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.space.api::<VersionedConfig>().patch(config, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until a version has been proven.
    pub(crate) async fn wait_until_current(&self, config: &str, version: &str) -> Result<()> {
        let configs = self.space.api::<VersionedConfig>();
        eventually(LONG_WAIT_TIMEOUT, &format!("{config} {version} is current"), async || {
            let config = configs.get(config).await.ok()?;
            let (generation, status) = (config.metadata.generation, config.status?);
            let seen = status.observed_generation == generation;
            let current = status.current_version.as_deref() == Some(version);
            (seen && current && status.state() == nudge_api::ConfigState::Current).then_some(())
        })
        .await
    }
}

/// Returns whether the pod's condition says so.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns every container of the pod that runs or has run, with what shows whether it is still the same one.
pub(crate) fn containers(pod: &Pod) -> Vec<(String, Option<String>, i32)> {
    let status = pod.status.iter();
    let all = status.flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    });
    all.map(|ContainerStatus { name, container_id, restart_count, .. }| {
        (name.clone(), container_id.clone(), *restart_count)
    })
    .collect()
}

/// Fails unless the pod is the same as before, with the same containers, of which none was ever restarted.
pub(crate) async fn assert_untouched(home: &ScenarioNamespace<'_>, before: &Pod) -> Result<()> {
    let name = before.name_any();
    let now = home.space.api::<Pod>().get(&name).await?;
    ensure!(now.metadata.uid == before.metadata.uid, "{name} is another pod");
    let (was, is) = (containers(before), containers(&now));
    ensure!(was == is, "{name} had {was:?} and has {is:?}");
    if let Some(restarted) = is.iter().find(|(_, _, restarts)| *restarts != 0) {
        bail!("{name}: {restarted:?} was restarted");
    }
    Ok(())
}
