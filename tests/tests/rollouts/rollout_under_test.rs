//! A config at version 1 with its subscribers: real agents and applications, for pods that no kubelet runs.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod as PodObject};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nudge_api::{Phase, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::Space;
use nudge_tests::cluster::assigned::{ALL, assigned};
use nudge_tests::cluster::installation::create_part;
use nudge_tests::{Installation, Pod, eventually, subscriber};
use serde_json::{Value, json};

/// For a machine that has much else to do.
pub(super) const LONG: Duration = Duration::from_mins(2);
/// The Deployments that the pods belong to.
pub(super) const WORKLOADS: [&str; 2] = ["web", "api"];

/// One pod.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) workload: String,
    pub(super) pod: Pod,
}

impl Member {
    /// The versions that its application was notified of by a signal, and found then.
    pub(super) fn notified(&self) -> Vec<String> {
        let output = self.pod.app_output();
        output.lines().filter_map(|line| Some(line.rsplit_once("SIGUSR1 ")?.1.to_owned())).collect()
    }

    pub(super) fn was_notified(&self, version: &str) -> bool {
        self.notified().iter().any(|notified| notified == version)
    }

    /// Stops its agent where it stands, or lets it go on.
    pub(super) fn signal_agent(&self, signal: Signal) -> Result<()> {
        let agent = self.pod.agent.as_ref().context("no agent")?;
        Ok(kill(Pid::from_raw(agent.pid()), signal)?)
    }
}

/// A config with its subscribers.
pub(super) struct RolloutUnderTest {
    pub(super) space: Space,
    pub(super) members: Vec<Member>,
    uid: String,
    hub: SocketAddr,
    born: usize,
}

impl RolloutUnderTest {
    /// So many pods, divided between the workloads.
    pub(super) async fn new(
        installation: &Installation<'_>,
        hub: SocketAddr,
        pods: usize,
        batch: &str,
    ) -> Result<Self> {
        let space = installation.enabled("rollouts").await?;
        let settings = json!({"batch": batch, "minReadySeconds": 1, "bakeSeconds": 0, "ackTimeoutSeconds": 60});
        let config = json!({"metadata": {"name": "shop"}, "spec": {"current": "1", "rollout": settings}});
        let config = space.create_object::<VersionedConfig>(config).await?;
        let mut rollout = Self { space, members: Vec::new(), uid: config.uid().context("no uid")?, hub, born: 0 };
        rollout.make_version("1").await?;
        rollout.is_current("1").await?;
        for number in 0..pods {
            rollout.bear(WORKLOADS[number % 2]).await?;
        }
        let all = format!("{pods}/{pods}");
        rollout.stands("all pods run version 1", |status| status.pods.summary == all).await?;
        Ok(rollout)
    }

    /// One more pod of a Deployment, with an agent and an application that prints the number that it finds at each signal.
    pub(super) async fn bear(&mut self, deployment: &str) -> Result<&Member> {
        self.born += 1;
        let name = format!("{deployment}-5d59-{}", self.born);
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-5d59"),
            "uid": format!("uid-{deployment}"), "controller": true,
        });
        let meta = json!({"labels": {"pod-template-hash": "5d59"}, "ownerReferences": [owner]});
        let (object, pod) = subscriber(&self.space, self.hub, &name, &meta, env!("CARGO_BIN_EXE_app")).await?;
        let uid = object.uid().context("no uid")?;
        self.members.push(Member { name, uid, workload: format!("Deployment/{deployment}"), pod });
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

    /// Asks for a version, which is made if it is not there.
    pub(super) async fn wants(&self, version: &str) -> Result<i64> {
        self.make_version(version).await?;
        self.set(json!({"current": version})).await
    }

    /// The uid of the config.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) async fn status(&self) -> Result<VersionedConfigStatus> {
        self.space.api::<VersionedConfig>().get("shop").await?.status.context("no status")
    }

    pub(super) async fn stands(
        &self,
        what: &str,
        is: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        let found = async || self.status().await.ok().filter(&is);
        match eventually(LONG, what, found).await {
            Ok(status) => Ok(status),
            Err(error) => Err(error.context(format!("{:#?}", self.status().await?))),
        }
    }

    pub(super) async fn is_current(&self, version: &str) -> Result<VersionedConfigStatus> {
        let what = format!("version {version} is current");
        self.stands(&what, |status| status.phase == Phase::Current && status.current.as_deref() == Some(version)).await
    }

    /// Changes the spec; its new generation.
    pub(super) async fn set(&self, spec: Value) -> Result<i64> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let written = self.space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &patch).await?;
        written.metadata.generation.context("no generation")
    }

    /// Members that the status assigns its target to.
    pub(super) fn assigned<'a>(&'a self, status: &VersionedConfigStatus) -> Vec<&'a Member> {
        let Some(target) = status.target.as_deref() else { return Vec::new() };
        let is = |member: &&Member| assigned(status, &self.uid, &member.uid, &member.workload) == Some(target);
        self.members.iter().filter(is).collect()
    }

    /// Waits until the version is assigned to some pods, but not to all of them.
    pub(super) async fn first_batch(&self, target: &str) -> Result<VersionedConfigStatus> {
        self.stands("the first batch is assigned", |status| {
            status.target.as_deref() == Some(target)
                && !status.rollout.groups.is_empty()
                && status.rollout.groups.iter().any(|group| group.threshold < ALL)
        })
        .await
    }

    /// Waits until every application has found this version at its last signal, or, if it was born with it, had none.
    pub(super) async fn all_end_with(&self, version: &str) -> Result<()> {
        for member in &self.members {
            let what = format!("{} ends with version {version}", member.name);
            let served = member.pod.path("files").join("number");
            let last = async || {
                let notified = member.notified();
                let serves = std::fs::read_to_string(&served).is_ok_and(|number| number == version);
                (serves && notified.last().is_none_or(|notified| notified == version)).then_some(())
            };
            eventually(LONG, &what, last).await.map_err(|error| member.pod.explain(&error))?;
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
        let status = if ready { "True" } else { "False" };
        let now = Timestamp::now().to_string();
        self.patch_pod(name, &json!({"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": now}]}))
            .await
    }

    pub(super) async fn has_event(&self, reason: &str) -> Result<Event> {
        eventually(LONG, &format!("there is an Event {reason}"), async || {
            let events = self.space.api::<Event>().list(&ListParams::default()).await.ok()?;
            events.into_iter().find(|event| event.reason.as_deref() == Some(reason))
        })
        .await
    }
}

/// How many pods of each workload a batch of a quarter has.
pub(super) fn quarter(pods: usize) -> usize {
    pods.div_ceil(2).div_ceil(4)
}

/// A number for tests that do more when they are run by hand.
pub(super) fn by_hand<T: std::str::FromStr>(variable: &str, otherwise: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
