//! The fleet: a real API server and etcd, two processes of each role, and pods whose agents and applications are real.

#![allow(clippy::print_stderr, reason = "for a person who looks on, or looks for the cause")]

mod app_output;
pub(crate) mod clock;
pub(crate) mod disk;
mod kubelet;
pub(crate) mod member;
pub(crate) mod nodes;
pub(crate) mod roles;
pub(crate) mod secrets;
mod tests;
pub(crate) mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::bind;
use nudge_tests::cluster::{Cluster, Options, TestNamespace};
use nudge_tests::{Installation, eventually};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use self::clock::Clocks;
use self::member::{Member, PodFactory, WORKLOADS, renew_token};
use self::nodes::Nodes;
use self::roles::{ControlPlane, ControlPlaneProcess};
use self::secrets::Canaries;
use self::versions::{CONFIGS, User};
use crate::check::belongs;
use crate::history::etcd::Follower;
use crate::history::recorder::Recorder;

/// The number of pods of each workload at the beginning.
const PODS_PER_WORKLOAD: usize = 5;
/// How long the fleet may take to come up.
const START_TIMEOUT: Duration = Duration::from_mins(3);
/// How often the places of all applications are compared.
const PLACEMENT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The number of good versions of a config, and of bad ones, that are never deleted.
const KEPT_VERSIONS: usize = 5;
/// The number of versions from which old ones are deleted. A config can hold 50.
const MANY_VERSIONS: usize = 20;

/// The control plane, the pods, and the users, with all that is known about them.
pub(crate) struct Fleet {
    // Dropped in this order: what uses a server ends before it.
    pub(crate) members: Vec<Member>,
    pub(crate) control_plane: ControlPlane,
    follower: Follower,
    pub(crate) user: User,
    /// The acts of users that are under way.
    pub(crate) user_tasks: JoinSet<Result<()>>,
    /// The number of the last version of each config.
    newest: BTreeMap<&'static str, usize>,
    /// The version that was requested last of each config, and whether it is bad.
    requested: BTreeMap<&'static str, (String, bool)>,
    /// The good versions of each config, as far as they are not to be deleted.
    good: BTreeMap<&'static str, Vec<String>>,
    /// The bad versions of each config, as far as they are not to be deleted.
    bad: BTreeMap<&'static str, Vec<String>>,
    /// The number of pods that were ever created.
    created_pods: usize,
    images: [usize; WORKLOADS.len()],
    nodes: Nodes,
    pub(crate) clocks: Clocks,
    pub(crate) recorder: Recorder,
    canaries: Canaries,
    pub(crate) space: TestNamespace,
    pub(crate) cluster: Cluster,
}

impl Fleet {
    /// Starts a fleet whose pods have the first versions; `None` where a program is missing.
    pub(crate) async fn start(seed: u64) -> Result<Option<Self>> {
        let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(None) };
        let Some(installation) = Installation::apply_apart(&cluster).await? else { return Ok(None) };
        let control_plane = ControlPlane::start(&cluster).await?;
        let space = installation.enabled("chaos").await?;
        bind(&space, "nudge-secrets").await?;
        let (recorder, canaries) = (Recorder::new(), Canaries::new(seed));
        let follower = Follower::start(cluster.etcd(), &space.name, recorder.clone());
        let user = User { space: space.clone(), recorder: recorder.clone(), canaries: canaries.clone() };
        let (members, newest) = (Vec::new(), BTreeMap::new());
        let images = [0; WORKLOADS.len()];
        let mut fleet = Self {
            members,
            control_plane,
            follower,
            user,
            user_tasks: JoinSet::new(),
            newest,
            requested: BTreeMap::new(),
            good: BTreeMap::new(),
            bad: BTreeMap::new(),
            created_pods: 0,
            images,
            nodes: Nodes::start(&space.client).await?,
            clocks: Clocks::compile(cluster.folder())?,
            recorder,
            canaries,
            space,
            cluster,
        };
        for config in CONFIGS {
            let version = fleet.next_version(config);
            fleet.record_version(config, &version, false);
            fleet.record_request(config, &version, false);
            fleet.user.create_version(config, &version, false).await?;
            fleet.user.create_config(config, &version).await?;
        }
        for number in 0..PODS_PER_WORKLOAD * WORKLOADS.len() {
            fleet.add_pod(number % WORKLOADS.len()).await?;
        }
        if !fleet.wait_until_placed(START_TIMEOUT).await? {
            bail!("the fleet does not come up: {}", fleet.placement_faults().join("; "));
        }
        Ok(Some(fleet))
    }

    /// Returns a name for the next version of a config.
    pub(crate) fn next_version(&mut self, config: &'static str) -> String {
        let number = self.newest.entry(config).or_default();
        *number += 1;
        number.to_string()
    }

    /// Adds a pod of a workload.
    pub(crate) async fn add_pod(&mut self, workload: usize) -> Result<()> {
        self.created_pods += 1;
        let factory = PodFactory {
            cluster: &self.cluster,
            space: &self.space,
            hubs: &self.control_plane.hubs,
            recorder: &self.recorder,
            canaries: &self.canaries,
            nodes: &self.nodes,
        };
        let member = factory.create_member(self.created_pods, workload, self.images[workload]).await?;
        self.members.push(member);
        Ok(())
    }

    /// Removes a pod, as its controller or an eviction does.
    pub(crate) async fn remove_pod(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.members.iter().position(|member| member.name == name) else { return Ok(()) };
        self.space.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await?;
        self.members.remove(at).end()
    }

    /// Returns the names of the pods of a workload, the oldest first.
    pub(crate) fn pod_names(&self, workload: usize) -> Vec<String> {
        let members = self.members.iter().filter(|member| member.workload == workload);
        members.map(|member| member.name.clone()).collect()
    }

    /// Changes the image in the template of a workload, for the pods that are added from now on.
    pub(crate) fn change_image(&mut self, workload: usize) {
        self.images[workload] += 1;
    }

    /// Returns a process of the control plane.
    pub(crate) fn control_plane_process(&mut self, name: &str) -> Result<(&mut ControlPlaneProcess, &Cluster)> {
        let process = self.control_plane.processes.iter_mut().find(|process| process.name == name);
        Ok((process.with_context(|| format!("there is no {name}"))?, &self.cluster))
    }

    /// Sets whether a node is Ready from now on.
    pub(crate) fn set_node_ready(&self, node: &str, ready: bool) {
        self.nodes.set_ready(node, ready);
    }

    /// Records that a version was created.
    pub(crate) fn record_version(&mut self, config: &'static str, version: &str, bad: bool) {
        let versions = if bad { &mut self.bad } else { &mut self.good };
        versions.entry(config).or_default().push(version.to_owned());
    }

    /// Records that a version was requested.
    pub(crate) fn record_request(&mut self, config: &'static str, version: &str, bad: bool) {
        self.requested.insert(config, (version.to_owned(), bad));
    }

    /// Returns the good version before the newest one.
    pub(crate) fn earlier_good_version(&self, config: &str) -> Option<String> {
        self.good.get(config)?.iter().rev().nth(1).cloned()
    }

    /// Takes out the good versions that nobody requests any more, and returns them.
    pub(crate) fn take_old_versions(&mut self, config: &str) -> Vec<String> {
        let Some(good) = self.good.get_mut(config) else { return Vec::new() };
        good.drain(..good.len().saturating_sub(KEPT_VERSIONS)).collect()
    }

    /// Takes out old versions, good and bad, if there are many, and returns them.
    pub(crate) fn take_surplus_versions(&mut self, config: &str) -> Vec<String> {
        let count = |versions: &BTreeMap<&'static str, Vec<String>>| versions.get(config).map_or(0, Vec::len);
        if count(&self.good) + count(&self.bad) < MANY_VERSIONS {
            return Vec::new();
        }
        let mut old = self.take_old_versions(config);
        if let Some(bad) = self.bad.get_mut(config) {
            old.extend(bad.drain(..bad.len().saturating_sub(KEPT_VERSIONS)));
        }
        old
    }

    /// Forgets a config that is deleted, with all of its versions.
    pub(crate) fn forget_config(&mut self, config: &str) {
        self.good.remove(config);
        self.bad.remove(config);
        self.requested.remove(config);
    }

    /// Waits until the API server reads and writes.
    pub(crate) async fn wait_for_api_server(&self) -> Result<()> {
        let accounts = self.space.api::<ServiceAccount>();
        let change = Patch::Merge(json!({"metadata": {"annotations": {"chaos": "1"}}}));
        let answers = async || accounts.patch("app", &PatchParams::default(), &change).await.ok().map(drop);
        eventually(START_TIMEOUT, "the API server answers", answers).await
    }

    /// Starts processes again that have ended by themselves, as kubelets do.
    pub(crate) fn restart_ended_processes(&mut self) -> Result<()> {
        for process in &mut self.control_plane.processes {
            if let Some(status) = process.exit_status()? {
                eprintln!("{:>8} {} has ended by itself: {status}", self.recorder.now(), process.name);
                process.start(&self.cluster)?;
            }
        }
        for member in &mut self.members {
            if let Some(status) = member.agent_exit_status()? {
                eprintln!("{:>8} the agent of {} has ended by itself: {status}", self.recorder.now(), member.name);
                member.kill_agent()?;
                member.start_agent()?;
            }
        }
        Ok(())
    }

    /// Waits until every application has just read what its pod is assigned, and nothing moves. Returns whether that is
    /// so in the end.
    pub(crate) async fn wait_until_placed(&mut self, within: Duration) -> Result<bool> {
        let deadline = Instant::now() + within;
        let mut checks = interval(PLACEMENT_CHECK_INTERVAL);
        loop {
            checks.tick().await;
            self.restart_ended_processes()?;
            let placement_faults = self.placement_faults();
            if placement_faults.is_empty() || Instant::now() >= deadline {
                return Ok(placement_faults.is_empty());
            }
        }
    }

    /// Waits until all acts of users are done.
    pub(crate) async fn wait_for_users(&mut self) -> Result<()> {
        while let Some(done) = self.user_tasks.join_next().await {
            done?.context("a user")?;
        }
        Ok(())
    }

    /// Copies all logs into a folder.
    pub(crate) fn copy_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for process in &self.control_plane.processes {
            fs::copy(
                self.cluster.folder().join(&process.name).join("log"),
                folder.join(format!("{}.log", process.name)),
            )?;
        }
        for member in &self.members {
            member.store_log()?;
        }
        for entry in fs::read_dir(member::log_folder(&self.cluster))? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        Ok(())
    }

    /// Returns what is not where it belongs: configs that move, and applications that have another version than they
    /// are assigned.
    pub(crate) fn placement_faults(&self) -> Vec<String> {
        let now = self.recorder.now();
        self.recorder.with_events(|events| belongs::placement_faults(events, now))
    }

    /// Gives every agent another token, as kubelets do in time.
    pub(crate) async fn renew_tokens(&self) -> Result<()> {
        for member in &self.members {
            renew_token(&self.space, &member.object, &member.pod.path("hub-token")).await?;
        }
        Ok(())
    }

    /// Restores etcd from its backup. Pods that the backup lacks end, pods that only the backup has are deleted, and
    /// users request their versions again.
    pub(crate) async fn restore(&mut self) -> Result<()> {
        self.follower.set_restored(true);
        self.cluster.restore_etcd().await?;
        self.follower.set_restored(false);
        self.wait_for_api_server().await?;
        let stored: BTreeSet<String> =
            self.space.api::<Pod>().list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
        let member_names: BTreeSet<String> = self.members.iter().map(|member| member.name.clone()).collect();
        for ghost in stored.difference(&member_names) {
            self.space.api::<Pod>().delete(ghost, &DeleteParams::default().grace_period(0)).await?;
        }
        while let Some(at) = self.members.iter().position(|member| !stored.contains(&member.name)) {
            let member = self.members.remove(at);
            let workload = member.workload;
            member.end()?;
            self.add_pod(workload).await?;
        }
        for (config, (version, bad)) in self.requested.clone() {
            let user = self.user.clone();
            self.user_tasks.spawn(async move {
                user.create_version(config, &version, bad).await?;
                user.request_version(config, &version).await
            });
        }
        Ok(())
    }

    /// Records values of Secrets in logs, metrics, Events and statuses. None may be there.
    pub(crate) async fn record_leaked_secrets(&self) -> Result<()> {
        let check = |place: &str, text: &str| self.canaries.record_leak(place, text, &self.recorder);
        for process in &self.control_plane.processes {
            let Some(replica) = &process.replica else { continue };
            check(&format!("the log of {}", process.name), &replica.log());
            if replica.health.port() != 0 {
                check(&format!("the metrics of {}", process.name), &replica.get("/metrics").await?.1);
            }
        }
        for member in &self.members {
            if let Some(agent) = &member.pod.agent {
                check(&format!("the log of the agent of {}", member.name), &agent.log());
            }
        }
        for event in self.space.api::<Event>().list(&ListParams::default()).await? {
            check(&format!("Event {}", event.name_any()), &serde_json::to_string(&event)?);
        }
        for config in self.space.api::<VersionedConfig>().list(&ListParams::default()).await? {
            check(&format!("the status of {}", config.name_any()), &serde_json::to_string(&config.status)?);
        }
        for pod in self.space.api::<Pod>().list(&ListParams::default()).await? {
            check(&format!("the status of {}", pod.name_any()), &serde_json::to_string(&pod.status)?);
        }
        Ok(())
    }
}
