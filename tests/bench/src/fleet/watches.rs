//! A run as watches of the API server show it: the conditions of pods and the statuses of configs. Only the needed
//! fields of each object are read, because the benchmark shares the processors with the measured programs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::TryStreamExt as _;
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent};
use kube::{Api, Client};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_protocol::pod::CONDITION;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::journal::{Journal, What};
use super::pods::number;
use crate::progress;

/// How long one request lasts; then the next one continues.
const REQUEST_DURATION: Duration = Duration::from_mins(30);

/// The watches of all kinds, which end when this is dropped.
pub(super) struct Watches {
    _tasks: JoinSet<()>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Clone, Deserialize)]
struct SeenPod {
    metadata: Metadata,
    #[serde(default)]
    status: SeenPodStatus,
}

#[derive(Clone, Default, Deserialize)]
struct SeenPodStatus {
    #[serde(default)]
    conditions: Vec<SeenCondition>,
}

#[derive(Clone, Deserialize)]
struct SeenCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Deserialize)]
struct SeenConfig {
    metadata: Metadata,
    status: Option<serde_json::Value>,
}

trait Seen: Clone + DeserializeOwned + Send + Sync + 'static {
    fn metadata(&self) -> &Metadata;
    fn enter(self, journal: &Journal);
}

impl Seen for SeenPod {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn enter(self, journal: &Journal) {
        let condition = self.status.conditions.iter().find(|condition| condition.kind == CONDITION);
        if let Some((pod, condition)) = number(&self.metadata.name).zip(condition) {
            let what = if condition.status == "True" { What::Proven } else { What::Unproven };
            journal.enter(pod, what, version_of(&condition.message));
        }
    }
}

impl Seen for SeenConfig {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn enter(self, journal: &Journal) {
        let Some((config, status)) = number(&self.metadata.name).zip(self.status) else { return };
        let bytes = status.to_string().len();
        match serde_json::from_value::<VersionedConfigStatus>(status) {
            Ok(mut status) => {
                status.versions = Vec::new();
                status.conditions = Vec::new();
                journal.look(config, bytes, status);
            }
            Err(error) => progress(&format!("the status of {} can't be read: {error}", self.metadata.name)),
        }
    }
}

/// Returns the version that the message of a condition begins with: `shop-0=2; why`. If there is none, 0.
fn version_of(message: &str) -> u32 {
    let runs = message.split(';').next().unwrap_or_default();
    runs.split_once('=').and_then(|(_, version)| version.parse().ok()).unwrap_or(0)
}

impl Watches {
    /// Watches from now on.
    pub(super) async fn start(client: &Client, journal: &Arc<Journal>) -> Result<Self> {
        let one = ListParams::default().limit(1);
        let pods = Api::<Pod>::all(client.clone()).list(&one).await?.metadata.resource_version;
        let configs = Api::<VersionedConfig>::all(client.clone()).list(&one).await?.metadata.resource_version;
        let mut tasks = JoinSet::new();
        let pods_path = "/api/v1/pods?labelSelector=nudge.dev%2Fagent";
        tasks.spawn(follow::<SeenPod>(client.clone(), pods_path, pods.unwrap_or_default(), Arc::clone(journal)));
        let configs_path = "/apis/nudge.dev/v1alpha1/versionedconfigs?";
        let configs = configs.unwrap_or_default();
        tasks.spawn(follow::<SeenConfig>(client.clone(), configs_path, configs, Arc::clone(journal)));
        Ok(Self { _tasks: tasks })
    }
}

async fn follow<S: Seen>(client: Client, path: &'static str, mut since: String, journal: Arc<Journal>) {
    loop {
        if let Err(error) = watch::<S>(&client, path, &mut since, &journal).await {
            // What follows would be incomplete, and says so: it waits for what is never seen.
            progress(&format!("a watch of the benchmark has ended: {error:#}"));
            return;
        }
    }
}

async fn watch<S: Seen>(client: &Client, path: &str, since: &mut String, journal: &Journal) -> Result<()> {
    let seconds = REQUEST_DURATION.as_secs();
    let path = format!("{path}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={since}");
    let mut events = Box::pin(client.request_events::<S>(Request::get(path).body(Vec::new())?).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(seen) | WatchEvent::Modified(seen) | WatchEvent::Deleted(seen) => {
                seen.metadata().resource_version.clone_into(since);
                seen.enter(journal);
            }
            WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version.clone_into(since),
            WatchEvent::Error(status) => bail!("{status:?}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_the_version_that_runs() {
        assert_eq!([version_of("shop-0=2"), version_of("shop-0=1; version 2 of config shop-0 is on its way")], [2, 1]);
        assert_eq!([version_of("shop-0="), version_of("")], [0, 0]);
    }
}
