//! A config at version 1 with its subscribers: real agents and applications, for pods that no kubelet runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod as PodObject};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nudge_api::{ConfigState, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::assigned::assigned;
use nudge_tests::cluster::installation::{create_part, injected_pod_with};
use nudge_tests::{Installation, Pod, eventually, serving};
use serde_json::{Value, json};

/// How long anything may take on a busy machine.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
/// The Deployments that the pods belong to.
pub(super) const WORKLOADS: [&str; 2] = ["web", "api"];

/// A pod of the rollout.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) workload: String,
    labels: BTreeMap<String, String>,
    pub(super) pod: Pod,
}

impl Member {
    /// Returns the versions that its application was notified of by a signal, and found then.
    pub(super) fn notified_versions(&self) -> Vec<String> {
        let output = self.pod.app_output();
        output.lines().filter_map(|line| Some(line.rsplit_once("SIGUSR1 ")?.1.to_owned())).collect()
    }

    pub(super) fn was_notified(&self, version: &str) -> bool {
        self.notified_versions().iter().any(|notified| notified == version)
    }

    /// Stops its agent where it stands, or lets it continue.
    pub(super) fn signal_agent(&self, signal: Signal) -> Result<()> {
        let agent = self.pod.agent.as_ref().context("no agent")?;
        Ok(kill(Pid::from_raw(agent.pid()), signal)?)
    }
}

/// A config with its subscribers.
pub(super) struct RolloutUnderTest {
    pub(super) space: TestNamespace,
    pub(super) members: Vec<Member>,
    uid: String,
    hub: SocketAddr,
    born: usize,
    /// The fields of the pods' containers in addition to their names.
    container: Value,
    /// What the pods subscribe to: `shop`, and perhaps others after it.
    configs: &'static str,
    /// The URL at which applications are asked about versions.
    check: Option<String>,
    /// The keys that applications read; `None` for all.
    keys: Option<&'static str>,
}

impl RolloutUnderTest {
    /// Creates this many pods, divided between the workloads, without a probe; they are moved in these steps, and
    /// watched for a second.
    pub(super) async fn new(
        installation: &Installation<'_>,
        hub: SocketAddr,
        pods: usize,
        steps: &[&str],
    ) -> Result<Self> {
        let space = installation.enabled("rollouts").await?;
        Self::of(space, hub, pods, ("shop", &settings(steps), &json!({}))).await
    }

    /// Returns everything at its default, and a readiness probe that names no time of its own.
    pub(super) async fn with_defaults(installation: &Installation<'_>, hub: SocketAddr, pods: usize) -> Result<Self> {
        let space = installation.enabled("defaults").await?;
        let probe = json!({"readinessProbe": {"httpGet": {"path": "/healthy", "port": 8080}}});
        Self::of(space, hub, pods, ("shop", &json!({}), &probe)).await
    }

    /// Returns the same of pods with these configs, whose containers have this.
    pub(super) async fn of(
        space: TestNamespace,
        hub: SocketAddr,
        pods: usize,
        (configs, settings, container): (&'static str, &Value, &Value),
    ) -> Result<Self> {
        let config = json!({"metadata": {"name": "shop"}, "spec": {"version": "1", "rollout": settings}});
        let config = space.create_object::<VersionedConfig>(config).await?;
        let (uid, container) = (config.uid().context("no uid")?, container.clone());
        let mut rollout =
            Self { space, members: Vec::new(), uid, hub, born: 0, container, configs, check: None, keys: None };
        rollout.make_version("1").await?;
        rollout.wait_until_current("1").await?;
        rollout.populate(pods).await?;
        Ok(rollout)
    }

    /// Returns the same of pods whose applications are all asked at this URL.
    pub(super) async fn with_check_url(
        installation: &Installation<'_>,
        hub: SocketAddr,
        pods: usize,
        check: &str,
    ) -> Result<Self> {
        Self::asking_in(installation.enabled("rollouts").await?, hub, pods, check).await
    }

    /// Returns the same in a namespace that is there.
    pub(super) async fn asking_in(space: TestNamespace, hub: SocketAddr, pods: usize, check: &str) -> Result<Self> {
        let mut rollout = Self::of(space, hub, 0, ("shop", &settings(&["1", "50%"]), &json!({}))).await?;
        rollout.check = Some(check.to_owned());
        rollout.populate(pods).await?;
        Ok(rollout)
    }

    /// Returns the same of pods whose applications are notified of these keys alone.
    pub(super) async fn reading_keys(
        installation: &Installation<'_>,
        hub: SocketAddr,
        pods: usize,
        keys: &'static str,
    ) -> Result<Self> {
        let space = installation.enabled("rollouts").await?;
        let mut rollout = Self::of(space, hub, 0, ("shop", &settings(&["1", "50%"]), &json!({}))).await?;
        rollout.keys = Some(keys);
        rollout.populate(pods).await?;
        Ok(rollout)
    }

    async fn populate(&mut self, pods: usize) -> Result<()> {
        for number in 0..pods {
            self.bear(WORKLOADS[number % 2]).await?;
        }
        let description = format!("{pods}/{pods}");
        self.wait_for_status("all pods run version 1", |status| status.pods.summary == description).await?;
        Ok(())
    }

    /// Returns one more pod of a Deployment, with an agent and an application that prints the number that it finds at
    /// each signal.
    pub(super) async fn bear(&mut self, deployment: &str) -> Result<&Member> {
        self.born += 1;
        let name = format!("{deployment}-5d59-{}", self.born);
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-5d59"),
            "uid": format!("uid-{deployment}"), "controller": true,
        });
        let labels = json!({"pod-template-hash": "5d59", "app": deployment});
        let mut meta = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
        if let Some(keys) = self.keys {
            meta["annotations"] = json!({"nudge.dev/keys.app": keys});
        }
        let object = injected_pod_with(&self.space, self.configs, &meta, &self.container).await?;
        let what = (self.configs, self.check.as_deref());
        let pod = serving(&self.space, self.hub, &object, what, env!("CARGO_BIN_EXE_app")).await?;
        let (uid, workload) = (object.uid().context("no uid")?, format!("Deployment/{deployment}"));
        self.members.push(Member { name, uid, workload, labels: object.metadata.labels.unwrap_or_default(), pod });
        self.members.last().context("just born")
    }

    /// Deletes a pod, and ends what stands for it.
    pub(super) async fn bury(&mut self, name: &str) -> Result<()> {
        let at = self.members.iter().position(|member| member.name == name).context("no such member")?;
        self.space.api::<PodObject>().delete(name, &DeleteParams::default().grace_period(0)).await?;
        drop(self.members.swap_remove(at));
        Ok(())
    }

    async fn make_version(&self, version: &str) -> Result<()> {
        let name = format!("shop-{version}");
        if self.space.api::<ConfigMap>().get_opt(&name).await?.is_some() {
            return Ok(());
        }
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let object =
            json!({"metadata": {"name": name, "labels": labels}, "immutable": true, "data": {"number": version}});
        create_part::<ConfigMap>(&self.space, object).await?;
        Ok(())
    }

    /// Requests a version, which is made if it is not there.
    pub(super) async fn request_version(&self, version: &str) -> Result<i64> {
        self.make_version(version).await?;
        self.set(json!({"version": version})).await
    }

    /// Returns the uid of the config.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) async fn status(&self) -> Result<VersionedConfigStatus> {
        self.status_of("shop").await
    }

    async fn status_of(&self, config: &str) -> Result<VersionedConfigStatus> {
        self.space.api::<VersionedConfig>().get(config).await?.status.context("no status")
    }

    pub(super) async fn wait_for_status(
        &self,
        what: &str,
        is: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        self.stands_of("shop", what, is).await
    }

    /// Returns the same of another config.
    pub(super) async fn stands_of(
        &self,
        config: &str,
        what: &str,
        is: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        let find = async || self.status_of(config).await.ok().filter(&is);
        match eventually(WAIT_TIMEOUT, what, find).await {
            Ok(status) => Ok(status),
            Err(error) => Err(error.context(format!("{:#?}", self.status_of(config).await?))),
        }
    }

    pub(super) async fn wait_until_current(&self, version: &str) -> Result<VersionedConfigStatus> {
        let description = format!("version {version} is current");
        self.wait_for_status(&description, |status| {
            status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version)
        })
        .await
    }

    /// Changes the spec; its new generation.
    pub(super) async fn set(&self, spec: Value) -> Result<i64> {
        self.set_of("shop", spec).await
    }

    /// Returns the same of another config.
    pub(super) async fn set_of(&self, config: &str, spec: Value) -> Result<i64> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let written = self.space.api::<VersionedConfig>().patch(config, &PatchParams::default(), &patch).await?;
        written.metadata.generation.context("no generation")
    }

    /// Members that the status assigns its target to.
    pub(super) fn assigned<'a>(&'a self, status: &VersionedConfigStatus) -> Vec<&'a Member> {
        let Some(target) = status.target_version.as_deref() else { return Vec::new() };
        self.members.iter().filter(|member| self.version_of(status, member) == Some(target)).collect()
    }

    /// Returns the version that the status assigns to a member.
    pub(super) fn version_of<'a>(&self, status: &'a VersionedConfigStatus, member: &Member) -> Option<&'a str> {
        assigned(status, &self.uid, &member.uid, &member.workload, &member.labels)
    }

    /// Waits until the version is assigned to some pods, but not to all of them.
    pub(super) async fn first_step(&self, target: &str) -> Result<VersionedConfigStatus> {
        self.wait_for_status("the first step is assigned", |status| {
            let assigned = self.assigned(status).len();
            status.target_version.as_deref() == Some(target) && (1..self.members.len()).contains(&assigned)
        })
        .await
    }

    /// Waits until pods with the assigned target report it, and the other pods report their earlier version. All pods
    /// are Ready.
    pub(super) async fn step_runs(&self, target: &str) -> Result<VersionedConfigStatus> {
        self.wait_for_status("the step runs it", |status| {
            status.target_version.as_deref() == Some(target)
                && !self.assigned(status).is_empty()
                && status.pods.ready == status.pods.total
        })
        .await
    }

    /// Waits until every application has found this version at its last signal, or, if it was born with it, had none.
    pub(super) async fn all_end_with(&self, version: &str) -> Result<()> {
        for member in &self.members {
            let description = format!("{} ends with version {version}", member.name);
            let served = member.pod.path("files").join("number");
            let last = async || {
                let notified = member.notified_versions();
                let serves = std::fs::read_to_string(&served).is_ok_and(|number| number == version);
                (serves && notified.last().is_none_or(|notified| notified == version)).then_some(())
            };
            eventually(WAIT_TIMEOUT, &description, last).await.map_err(|error| member.pod.explain(&error))?;
        }
        Ok(())
    }

    /// Changes the status of a pod as a kubelet would.
    pub(super) async fn patch_pod(&self, name: &str, status: &Value) -> Result<()> {
        let patch = Patch::Strategic(json!({"status": status}));
        self.space.api::<PodObject>().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// What a kubelet writes when the readiness probe changes its mind.
    pub(super) async fn make_ready(&self, name: &str, ready: bool) -> Result<()> {
        self.space.set_ready(name, ready).await
    }

    /// What a kubelet writes when the application has ended and was started again.
    pub(super) async fn crash(&self, name: &str, ready: bool) -> Result<()> {
        let now = Timestamp::now().to_string();
        self.space
            .change_app(name, ready, |app| {
                app["restartCount"] = (app["restartCount"].as_i64().unwrap_or_default() + 1).into();
                app["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": now}});
                app["ready"] = ready.into();
            })
            .await
    }

    pub(super) async fn wait_for_event(&self, reason: &str) -> Result<Event> {
        eventually(WAIT_TIMEOUT, &format!("there is an Event {reason}"), async || {
            let events = self.space.api::<Event>().list(&ListParams::default()).await.ok()?;
            events.into_iter().find(|event| event.reason.as_deref() == Some(reason))
        })
        .await
    }
}

/// `spec.rollout` with these steps, which are watched for a second.
fn settings(steps: &[&str]) -> Value {
    json!({"steps": steps_of(steps), "minReadySeconds": 1, "bakeSeconds": 0, "ackTimeoutSeconds": 60})
}

/// `spec.rollout.steps` of these numbers and shares.
pub(super) fn steps_of(pods: &[&str]) -> Value {
    pods.iter().map(|pods| json!({"pods": pods.parse::<u32>().map_or(json!(pods), |number| json!(number))})).collect()
}

/// Returns a number for tests that do more when they are run by hand.
pub(super) fn by_hand<T: std::str::FromStr>(variable: &str, otherwise: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
