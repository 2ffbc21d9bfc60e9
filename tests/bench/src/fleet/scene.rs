//! A cluster with two replicas of each role, a fleet of pods and their agents; and the shared parts of all its
//! measures.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{NAMESPACE, hub_ca};
use nudge_tests::cluster::options::Options as ClusterOptions;
use nudge_tests::{ApartTwice, Cluster, Installation, eventually};
use serde_json::json;
use tokio::time::sleep;

use super::Options;
use super::agent::Refuses;
use super::agents::Agents;
use super::counters::Reading;
use super::floor::floor;
use super::journal::Journal;
use super::pods::{Fleet, Shape, config_name, make};
use super::watches::Watches;
use crate::progress;

/// How long a whole rollout may take.
const ROLLOUT_TIMEOUT: Duration = Duration::from_hours(1);
/// How often it is looked whether something is so.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long agents must do nothing to be at rest: a report may wait for its time.
const MIN_REST_DURATION: Duration = Duration::from_secs(4);

/// All of it. What depends on others ends before them.
pub(super) struct Scene {
    pub(super) agents: Agents,
    pub(super) watches: Watches,
    pub(super) roles: ApartTwice,
    pub(super) client: Client,
    pub(super) fleet: Fleet,
    pub(super) journal: Arc<Journal>,
    pub(super) cluster: Cluster,
}

impl Scene {
    /// Starts all, and waits until every pod has a condition by which it runs version 1.
    pub(super) async fn start(options: &Options, shape: Shape, refuses: Box<Refuses>) -> Result<Self> {
        let mut settings = ClusterOptions::default();
        if let Some(folder) = &options.folder {
            settings = settings.inside(folder);
        }
        let cluster = Cluster::start(&settings).await?.context("no Kubernetes; run tests/run first")?;
        let installation = Installation::apply_apart(&cluster).await?.context("kubectl is missing")?;
        installation.apply_file("components/cluster-reads/rbac.yaml").await?;
        progress("two replicas of each role start");
        let roles = installation.apart_twice(&options.replica_options()?).await?;
        let (client, journal) = (cluster.admin().await?, Arc::new(Journal::new(shape.configs, shape.pods)));
        let watches = Watches::start(&client, &journal).await?;

        let authorities = hub_ca(&TestNamespace { client: client.clone(), name: NAMESPACE.to_owned() }).await?;
        let hubs = roles.hub.each_ref().map(|replica| replica.hub).to_vec();
        let mut agents = Agents::new(hubs, &authorities, &journal, refuses);
        let count = shape.configs * shape.pods;
        progress(&format!("{count} pods with {} configs in {} namespaces", shape.configs, shape.namespaces));
        let fleet = Box::pin(make(&installation, shape, &options.rollout(), &mut agents)).await?;
        progress("the conditions of all pods");
        let scene = Self { agents, watches, roles, client, fleet, journal, cluster };
        scene.all_proven(1).await?;
        scene.rest().await?;
        Ok(scene)
    }

    /// Requests a version of a config.
    pub(super) async fn push(&self, config: usize, version: u32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"version": version.to_string()}}));
        let configs = self.fleet.space(config).api::<VersionedConfig>();
        configs.patch(&config_name(config), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits for something that the journal shows.
    pub(super) async fn until(&self, what: &str, condition: impl Fn(&Journal) -> bool) -> Result<()> {
        let looks = async || {
            if condition(&self.journal) {
                return Some(());
            }
            sleep(CHECK_INTERVAL).await;
            None
        };
        eventually(ROLLOUT_TIMEOUT, what, looks).await
    }

    /// Waits until the conditions of all pods say that they run the version.
    pub(super) async fn all_proven(&self, version: u32) -> Result<()> {
        let all = self.fleet.pods.len();
        let description = format!("all conditions say that version {version} runs");
        let waited = self.until(&description, |journal| journal.current_pods(version) == all).await;
        waited.with_context(|| format!("{} of {all} do", self.journal.current_pods(version)))
    }

    /// Waits until agents do nothing more.
    pub(super) async fn rest(&self) -> Result<()> {
        let mut before = self.read().await?.of_agents();
        loop {
            sleep(MIN_REST_DURATION).await;
            let now = self.read().await?.of_agents();
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }

    /// Reads all counters.
    pub(super) async fn read(&self) -> Result<Reading> {
        Reading::of(&self.client, &self.cluster, &self.roles, &self.journal, self.fleet.pods.len()).await
    }

    /// Returns how long a bare loop needs for the conditions of this many pods.
    pub(super) async fn floor(&self, pods: usize) -> Result<Duration> {
        floor(&self.client, self.fleet.pods.iter().take(pods)).await
    }
}
