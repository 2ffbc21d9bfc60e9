//! The fleet: a real API server and etcd, two processes of each role, and pods whose agents and applications are real.

#![allow(clippy::print_stderr, reason = "for a person who looks on, or looks for the cause")]

pub(crate) mod clock;
pub(crate) mod disk;
mod kubelet;
pub(crate) mod member;
pub(crate) mod nodes;
pub(crate) mod roles;
pub(crate) mod secrets;
mod tail;
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
use nudge_tests::cluster::{Cluster, Options, Space};
use nudge_tests::{Installation, eventually};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use self::clock::Clocks;
use self::member::{Birth, Member, WORKLOADS, renew_token};
use self::nodes::Nodes;
use self::roles::{ControlPlane, Station};
use self::secrets::Canaries;
use self::versions::{CONFIGS, User};
use crate::check::belongs;
use crate::history::etcd::Follower;
use crate::history::recorder::Recorder;

/// Applications of each workload.
const EACH: usize = 5;
/// How long the fleet may take to come up.
const SOON: Duration = Duration::from_mins(3);
/// Between two looks at where everybody is.
const LOOK: Duration = Duration::from_millis(500);
/// Good versions of a config, and bad ones, that are never deleted.
const KEPT: usize = 5;
/// So many versions a config may have before old ones are deleted. It can hold 50.
const MANY: usize = 20;

/// All of it.
pub(crate) struct Fleet {
    // Dropped in this order: what uses a server ends before it.
    pub(crate) members: Vec<Member>,
    pub(crate) control_plane: ControlPlane,
    follower: Follower,
    pub(crate) user: User,
    /// What users are at.
    pub(crate) users: JoinSet<Result<()>>,
    /// The number of the last version of each config.
    newest: BTreeMap<&'static str, usize>,
    /// What was asked for last of each config, and whether it is bad.
    asked: BTreeMap<&'static str, (String, bool)>,
    /// The good versions of each config, as far as they are not to be deleted.
    good: BTreeMap<&'static str, Vec<String>>,
    /// The bad ones.
    bad: BTreeMap<&'static str, Vec<String>>,
    born: usize,
    images: [usize; WORKLOADS.len()],
    nodes: Nodes,
    pub(crate) clocks: Clocks,
    pub(crate) recorder: Recorder,
    canaries: Canaries,
    pub(crate) space: Space,
    pub(crate) cluster: Cluster,
}

impl Fleet {
    /// Starts it, all on the first versions; `None` where a program is missing.
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
            users: JoinSet::new(),
            newest,
            asked: BTreeMap::new(),
            good: BTreeMap::new(),
            bad: BTreeMap::new(),
            born: 0,
            images,
            nodes: Nodes::start(&space.client).await?,
            clocks: Clocks::make(cluster.folder())?,
            recorder,
            canaries,
            space,
            cluster,
        };
        for config in CONFIGS {
            let version = fleet.next_version(config);
            fleet.made(config, &version, false);
            fleet.asked(config, &version, false);
            fleet.user.makes(config, &version, false).await?;
            fleet.user.makes_config(config, &version).await?;
        }
        for number in 0..EACH * WORKLOADS.len() {
            fleet.bear(number % WORKLOADS.len()).await?;
        }
        if !fleet.finds_its_place(SOON).await? {
            bail!("the fleet does not come up: {}", fleet.unplaced().join("; "));
        }
        Ok(Some(fleet))
    }

    /// A name for the next version of a config.
    pub(crate) fn next_version(&mut self, config: &'static str) -> String {
        let number = self.newest.entry(config).or_default();
        *number += 1;
        number.to_string()
    }

    /// One more pod of a workload.
    pub(crate) async fn bear(&mut self, workload: usize) -> Result<()> {
        self.born += 1;
        let birth = Birth {
            cluster: &self.cluster,
            space: &self.space,
            hubs: &self.control_plane.hubs,
            recorder: &self.recorder,
            canaries: &self.canaries,
            nodes: &self.nodes,
        };
        let member = birth.member(self.born, workload, self.images[workload]).await?;
        self.members.push(member);
        Ok(())
    }

    /// Deletes a pod as its controller or an eviction does.
    pub(crate) async fn bury(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.members.iter().position(|member| member.name == name) else { return Ok(()) };
        self.space.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await?;
        self.members.remove(at).bury()
    }

    /// The pods of a workload, the oldest first.
    pub(crate) fn names_of(&self, workload: usize) -> Vec<String> {
        let of = self.members.iter().filter(|member| member.workload == workload);
        of.map(|member| member.name.clone()).collect()
    }

    /// The pods of a workload are of another template from now on.
    pub(crate) fn another_image(&mut self, workload: usize) {
        self.images[workload] += 1;
    }

    /// The place of a process of the control plane.
    pub(crate) fn station(&mut self, name: &str) -> Result<(&mut Station, &Cluster)> {
        let station = self.control_plane.stations.iter_mut().find(|station| station.name == name);
        Ok((station.with_context(|| format!("there is no {name}"))?, &self.cluster))
    }

    /// Whether a node is Ready from now on.
    pub(crate) fn set_node(&self, node: &str, ready: bool) {
        self.nodes.set(node, ready);
    }

    /// A version was made.
    pub(crate) fn made(&mut self, config: &'static str, version: &str, bad: bool) {
        let all = if bad { &mut self.bad } else { &mut self.good };
        all.entry(config).or_default().push(version.to_owned());
    }

    /// A version was asked for.
    pub(crate) fn asked(&mut self, config: &'static str, version: &str, bad: bool) {
        self.asked.insert(config, (version.to_owned(), bad));
    }

    /// A good version before the newest one.
    pub(crate) fn earlier(&self, config: &str) -> Option<String> {
        self.good.get(config)?.iter().rev().nth(1).cloned()
    }

    /// Versions that nobody asks for any more.
    pub(crate) fn old(&mut self, config: &str) -> Vec<String> {
        let Some(good) = self.good.get_mut(config) else { return Vec::new() };
        good.drain(..good.len().saturating_sub(KEPT)).collect()
    }

    /// The same, and old bad ones, where there are many.
    pub(crate) fn surplus(&mut self, config: &str) -> Vec<String> {
        let count = |all: &BTreeMap<&'static str, Vec<String>>| all.get(config).map_or(0, Vec::len);
        if count(&self.good) + count(&self.bad) < MANY {
            return Vec::new();
        }
        let mut old = self.old(config);
        if let Some(bad) = self.bad.get_mut(config) {
            old.extend(bad.drain(..bad.len().saturating_sub(KEPT)));
        }
        old
    }

    /// The config goes, with all of its versions.
    pub(crate) fn forget(&mut self, config: &str) {
        self.good.remove(config);
        self.bad.remove(config);
        self.asked.remove(config);
    }

    /// Waits until the API server reads and writes.
    pub(crate) async fn api_answers(&self) -> Result<()> {
        let accounts = self.space.api::<ServiceAccount>();
        let change = Patch::Merge(json!({"metadata": {"annotations": {"chaos": "1"}}}));
        let answers = async || accounts.patch("app", &PatchParams::default(), &change).await.ok().map(drop);
        eventually(SOON, "the API server answers", answers).await
    }

    /// Starts again what has ended by itself, as kubelets do.
    pub(crate) fn revive(&mut self) -> Result<()> {
        for station in &mut self.control_plane.stations {
            if let Some(status) = station.ended()? {
                eprintln!("{:>8} {} has ended by itself: {status}", self.recorder.now(), station.name);
                station.start(&self.cluster)?;
            }
        }
        for member in &mut self.members {
            if let Some(status) = member.agent_ended()? {
                eprintln!("{:>8} the agent of {} has ended by itself: {status}", self.recorder.now(), member.name);
                member.kill_agent()?;
                member.start_agent()?;
            }
        }
        Ok(())
    }

    /// Waits until every application has just read what its pod is assigned, and nothing moves. Whether that is so in the end.
    pub(crate) async fn finds_its_place(&mut self, within: Duration) -> Result<bool> {
        let deadline = Instant::now() + within;
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            self.revive()?;
            let unplaced = self.unplaced();
            if unplaced.is_empty() || Instant::now() >= deadline {
                return Ok(unplaced.is_empty());
            }
        }
    }

    /// Waits for all that users are at.
    pub(crate) async fn users_are_done(&mut self) -> Result<()> {
        while let Some(done) = self.users.join_next().await {
            done?.context("a user")?;
        }
        Ok(())
    }

    /// Copies all logs into a folder.
    pub(crate) fn keep_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for station in &self.control_plane.stations {
            fs::copy(
                self.cluster.folder().join(&station.name).join("log"),
                folder.join(format!("{}.log", station.name)),
            )?;
        }
        for member in &self.members {
            member.keep_log()?;
        }
        for entry in fs::read_dir(member::logs(&self.cluster))? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        Ok(())
    }

    /// Who is not where it belongs.
    pub(crate) fn unplaced(&self) -> Vec<String> {
        let now = self.recorder.now();
        self.recorder.look(|events| belongs::unplaced(events, now))
    }

    /// Gives every agent another token, as kubelets do in time.
    pub(crate) async fn renew_tokens(&self) -> Result<()> {
        for member in &self.members {
            renew_token(&self.space, &member.object, &member.pod.path("hub-token")).await?;
        }
        Ok(())
    }

    /// etcd goes back to its backup. Pods that it knows nothing of end, those that it believes in are gone, and users ask again.
    pub(crate) async fn restore(&mut self) -> Result<()> {
        self.follower.set_restored(true);
        self.cluster.restore_etcd().await?;
        self.follower.set_restored(false);
        self.api_answers().await?;
        let stored: BTreeSet<String> =
            self.space.api::<Pod>().list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
        let known: BTreeSet<String> = self.members.iter().map(|member| member.name.clone()).collect();
        for ghost in stored.difference(&known) {
            self.space.api::<Pod>().delete(ghost, &DeleteParams::default().grace_period(0)).await?;
        }
        while let Some(at) = self.members.iter().position(|member| !stored.contains(&member.name)) {
            let member = self.members.remove(at);
            let workload = member.workload;
            member.bury()?;
            self.bear(workload).await?;
        }
        for (config, (version, bad)) in self.asked.clone() {
            let user = self.user.clone();
            self.users.spawn(async move {
                user.makes(config, &version, bad).await?;
                user.asks(config, &version).await
            });
        }
        Ok(())
    }

    /// Looks for values of Secrets wherever they must not be.
    pub(crate) async fn look_for_secrets(&self) -> Result<()> {
        let look = |place: &str, text: &str| self.canaries.look(place, text, &self.recorder);
        for station in &self.control_plane.stations {
            let Some(process) = &station.process else { continue };
            look(&format!("the log of {}", station.name), &process.log());
            if process.health.port() != 0 {
                look(&format!("the metrics of {}", station.name), &process.get("/metrics").await?.1);
            }
        }
        for member in &self.members {
            if let Some(agent) = &member.pod.agent {
                look(&format!("the log of the agent of {}", member.name), &agent.log());
            }
        }
        for event in self.space.api::<Event>().list(&ListParams::default()).await? {
            look(&format!("Event {}", event.name_any()), &serde_json::to_string(&event)?);
        }
        for config in self.space.api::<VersionedConfig>().list(&ListParams::default()).await? {
            look(&format!("the status of {}", config.name_any()), &serde_json::to_string(&config.status)?);
        }
        for pod in self.space.api::<Pod>().list(&ListParams::default()).await? {
            look(&format!("the status of {}", pod.name_any()), &serde_json::to_string(&pod.status)?);
        }
        Ok(())
    }
}
