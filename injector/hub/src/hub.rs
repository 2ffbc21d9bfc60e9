//! The hub: its modules, put together, and its work apart from the requests of agents.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Client;
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::index::Index;
use nudge_core::derived_keys::ContentKey;
use nudge_core::hub_health::waiting_reports;
use nudge_core::identity::Identity;
use nudge_core::keys::{ConfigKey, PodKey, PodUid};
use nudge_core::pods::PodState;
use nudge_protocol::hub::MAX_REQUEST_BYTES;
use nudge_server::shares::Shares;
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use crate::callers::{Authentication, PollSlots, Reviewer};
use crate::contents::{ContentStore, PartSource};
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::polling::{ConfigSource, Confirmations, Polling};
use crate::reporting::{ConditionWriter, PodConditions, PodReport, Reports, WriteQueue};
use crate::settings::Settings;

/// The interval between searches for reports and contents that are not needed any more.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(15);

/// The access of the hub to the cluster.
pub struct Cluster {
    /// The reviewer of tokens.
    pub reviewer: Arc<dyn Reviewer>,
    /// The source of configs as they are stored now.
    pub configs: Arc<dyn ConfigSource>,
    /// The source of the parts of versions.
    pub parts: Arc<dyn PartSource>,
    /// The writer of the conditions of pods.
    pub conditions: Arc<dyn ConditionWriter>,
}

impl Cluster {
    /// Makes an access to the API server behind `client`.
    pub fn new(client: Client) -> Self {
        let client = Arc::new(client);
        Self { reviewer: client.clone(), configs: client.clone(), parts: client.clone(), conditions: client }
    }
}

/// The hub: it answers polls and takes reports of agents.
pub struct Hub {
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Metrics,
    /// The shares of the bytes for bodies of requests.
    pub(crate) bodies: Shares,
    pub(crate) authentication: Arc<Authentication>,
    pub(crate) polling: Polling,
    pub(crate) conditions: Arc<PodConditions>,
    pub(crate) drain: Arc<Drain>,
}

impl Hub {
    /// Makes a hub on this runtime over `index`, and becomes the only listener of `index` for pods and service accounts
    /// that are gone. `key` is the key of the digests.
    pub fn new(
        index: Arc<Index>,
        cluster: Cluster,
        settings: Settings,
        key: Arc<ContentKey>,
        registry: &mut Registry,
    ) -> Arc<Self> {
        let metrics = Metrics::default();
        metrics.register(registry);
        let settings = Arc::new(settings);
        let authentication = Authentication::new(&index, cluster.reviewer, &settings, metrics.clone());
        let contents = ContentStore::new(cluster.parts, key, &settings, metrics.clone());
        let poll_slots = PollSlots::new(settings.max_polls_per_pod);
        let conditions = Arc::new(PodConditions {
            index: Arc::clone(&index),
            settings: Arc::clone(&settings),
            metrics: metrics.clone(),
            authentication: Arc::clone(&authentication),
            contents: Arc::clone(&contents),
            poll_slots: Arc::clone(&poll_slots),
            reports: Reports::default(),
            queue: WriteQueue::default(),
            writer: cluster.conditions,
        });
        let drain = Arc::new(Drain::new(settings.drain_period));
        let polling = Polling {
            confirmations: Confirmations::new(Arc::clone(&index), cluster.configs),
            index,
            settings: Arc::clone(&settings),
            metrics: metrics.clone(),
            authentication: Arc::clone(&authentication),
            contents,
            poll_slots,
            conditions: Arc::clone(&conditions),
            drain: Arc::clone(&drain),
        };
        let bodies = Shares::new(settings.max_body_bytes, MAX_REQUEST_BYTES);
        let hub = Arc::new(Self { settings, metrics, bodies, authentication, polling, conditions, drain });
        let weak: Weak<Self> = Arc::downgrade(&hub);
        hub.polling.index.on_pod_gone(move |pod| {
            if let Some(hub) = weak.upgrade() {
                hub.remove_pod(pod);
            }
        });
        let weak = Arc::downgrade(&hub);
        hub.polling.index.on_account_gone(move |uid| {
            if let Some(hub) = weak.upgrade() {
                hub.authentication.gone.add(uid);
            }
        });
        hub
    }

    /// Has the tokens of a terminating pod reviewed again, and forgets a pod that is gone.
    fn remove_pod(&self, pod: &PodState) {
        self.authentication.reviews.forget(&pod.uid);
        let key = pod.key();
        if self.polling.index.pod(&key).is_none_or(|entry| entry.state.uid != pod.uid) {
            self.authentication.gone.add(pod.uid.as_str());
            self.conditions.reports.remove(&key, &pod.uid);
        }
    }

    /// Returns whether this replica holds a poll of the pod's agent.
    pub fn is_connected(&self, pod_uid: &PodUid) -> bool {
        self.polling.poll_slots.has_poll(pod_uid.as_str())
    }

    /// Fetches the contents that pods of the config may need next, so that they are ready when the pods are woken.
    pub fn prefetch(&self, key: &ConfigKey) {
        let Polling { index, contents, .. } = &self.polling;
        let Some(config) = index.config(key) else { return };
        let (Some(status), Some(uid)) = (&config.status, &config.metadata.uid) else { return };
        if !index.is_enabled(&key.namespace) || index.subscribers(key).is_empty() {
            return;
        }
        let assignable =
            [config.requested_version(), status.target_version.as_deref(), status.current_version.as_deref()];
        for version in assignable.into_iter().flatten().filter_map(|version| status.version(version)) {
            let has_secret = version.parts.iter().any(|part| part.kind == PartKind::Secret);
            if !has_secret || index.may_read_secrets(&key.namespace) {
                drop(contents.find_or_fetch(key, uid, Identity::of(&config), version));
            }
        }
    }

    /// Plans the condition `NoContact` for pods whose agent has not reported for a while. Only the leader does so,
    /// every 30 s or so.
    pub fn mark_silent_pods(&self) {
        self.conditions.mark_silent_pods();
    }

    /// Returns the note on this replica's Lease: how long the oldest report that it may write has waited, if that is
    /// long.
    pub fn lease_note(&self) -> Option<String> {
        waiting_reports::format_note(&self.conditions.queue.longest_waits(), jiff::Timestamp::now())
    }

    /// Returns the newest report of the pod that this replica has taken.
    pub fn last_report(&self, pod: &PodKey, uid: &PodUid) -> Option<Arc<PodReport>> {
        self.conditions.reports.get(pod, uid)
    }

    /// Removes expired entries regularly.
    pub(crate) async fn maintain(self: Arc<Self>) {
        let Polling { index, confirmations, contents, .. } = &self.polling;
        loop {
            sleep(MAINTENANCE_INTERVAL).await;
            let configs = index.subscribed_configs().into_iter().filter_map(|key| index.config(&key));
            let versions = |config: Arc<VersionedConfig>| {
                let (status, uid) = (config.status.as_ref()?, config.metadata.uid.as_ref()?);
                let versions = [&status.current_version, &status.target_version].into_iter().flatten();
                Some(versions.map(|version| (uid.clone(), version.clone())).collect::<Vec<_>>())
            };
            let needed: HashSet<(String, String)> = configs.filter_map(versions).flatten().collect();
            self.conditions.recheck_reports();
            confirmations.retain(|key| index.config(key).is_some());
            contents.retain(|uid, version| needed.contains(&(uid.to_owned(), version.to_owned())));
        }
    }
}
