//! A hub with stand-ins for the API server: tokens that name their pod, and stored objects in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use nudge_api::{
    PartKind, PartStatus, VersionState, VersionStatus, VersionedConfig, VersionedConfigSpec, VersionedConfigStatus,
};
use nudge_cluster::index::Index;
use nudge_core::keys::{ConfigKey, PodUid};
use nudge_core::pods::{PodState, Readiness, Report};
use nudge_core::versions::{contents_of, part_digest};
use nudge_hub::{
    Caller, Cluster, ConditionWriter, ConfigError, ConfigSource, Hub, Part, PartError, PartSource, ReviewError,
    Reviewer, Settings, WriteError,
};
use nudge_protocol::ConfigName;
use nudge_tests::fakes::crowd::{self, CONFIG, NAMESPACE};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;

/// Accepts every token of the crowd, after a time that a review by a real API server takes.
#[derive(Debug, Default)]
pub(crate) struct Reviews {
    /// How long a review takes.
    pub(crate) takes: Duration,
    asked: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Reviews {
    /// How many are under way.
    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// How many were made, and how many at the same time at most.
    pub(crate) fn counted(&self) -> (usize, usize) {
        (self.asked.load(Ordering::Relaxed), self.most.load(Ordering::Relaxed))
    }
}

/// A review is under way until this is dropped.
struct Now<'a>(&'a AtomicUsize);

impl Drop for Now<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reviewer for Reviews {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.most.fetch_max(self.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let _now = Now(&self.now);
            tokio::time::sleep(self.takes).await;
            let pod = pod(crowd::number(token).ok_or(ReviewError::Refused("this is no token of the stand-in"))?);
            let PodState { namespace, name, uid, service_account, .. } = pod;
            Ok(Caller { namespace, name, uid, service_account, account_uid: crowd::ACCOUNT_UID.to_owned() })
        })
    }
}

/// Pod `number`.
pub(crate) fn pod(number: usize) -> PodState {
    PodState {
        namespace: NAMESPACE.to_owned(),
        name: crowd::pod_name(number),
        uid: PodUid::new(&crowd::pod_uid(number)).unwrap_or_default(),
        service_account: crowd::SERVICE_ACCOUNT.to_owned(),
        configs: ConfigName::new(CONFIG).into_iter().collect(),
        workload: Some("Deployment/web".into()),
        readiness: Readiness::Ready,
        ..PodState::default()
    }
}

/// Stored objects: their uid, keys and values.
#[derive(Default)]
pub(crate) struct Stored(Mutex<HashMap<String, (PartStatus, Values)>>);

type Values = HashMap<String, Vec<u8>>;

impl Stored {
    /// Stores a version. Each part is a list of keys and values.
    pub(crate) fn add(&self, version: &str, parts: &[&[(&str, Vec<u8>)]]) -> VersionStatus {
        let mut stored = self.0.lock();
        let parts = parts.iter().enumerate().map(|(number, values)| {
            let name = format!("{CONFIG}-{version}-{number}");
            let values: Values = values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            let digest = part_digest(&values.clone().into_iter().collect(), None);
            let part = PartStatus { kind: PartKind::ConfigMap, name: name.clone(), uid: format!("uid-{name}"), digest };
            stored.insert(name, (part.clone(), values));
            part
        });
        let parts = parts.collect();
        VersionStatus {
            version: version.to_owned(),
            state: VersionState::Current,
            digest: String::new(),
            parts,
            keys: 0,
            bytes: 0,
            seal_time: None,
            consent: None,
        }
    }
}

impl PartSource for Stored {
    fn read<'a>(&'a self, _: &'a str, _: PartKind, name: &'a str) -> BoxFuture<'a, Result<Part, PartError>> {
        let stored = self.0.lock().get(name).cloned();
        Box::pin(async move {
            let (part, values) = stored.ok_or(PartError::Missing)?;
            let values = values.into_iter().map(|(key, value)| (key, k8s_openapi::ByteString(value))).collect();
            Ok(Part { uid: part.uid, contents: contents_of(None, Some(values)) })
        })
    }
}

/// A source of configs: the index.
struct Same(Arc<Index>);

impl ConfigSource for Same {
    fn read<'a>(&'a self, key: &'a ConfigKey) -> BoxFuture<'a, Result<Option<VersionedConfig>, ConfigError>> {
        Box::pin(async { Ok(self.0.config(key).map(|config| (*config).clone())) })
    }
}

/// Forgets the conditions that it is to write.
#[derive(Default)]
pub(crate) struct Forgotten {
    /// Panics instead.
    pub(crate) panics: AtomicBool,
}

impl ConditionWriter for Forgotten {
    fn write<'a>(&'a self, _: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        assert!(!self.panics.load(Ordering::Relaxed), "a panic of the test");
        Box::pin(async { Ok(()) })
    }
}

/// A hub over an index without a cluster.
pub(crate) struct StandIn {
    /// The index of the hub.
    pub(crate) index: Arc<Index>,
    /// The stored parts.
    pub(crate) stored: Arc<Stored>,
    /// Who reviews tokens.
    pub(crate) reviews: Arc<Reviews>,
    /// Who writes conditions.
    pub(crate) conditions: Arc<Forgotten>,
    pub(crate) hub: Arc<Hub>,
    registry: Registry,
    revision: Mutex<u64>,
}

impl StandIn {
    /// A hub that knows the first `pods` pods.
    pub(crate) fn new(settings: Settings, pods: usize, review: Duration) -> Self {
        let (index, stored) = (Arc::new(Index::default()), Arc::new(Stored::default()));
        let reviews = Arc::new(Reviews { takes: review, ..Reviews::default() });
        let conditions = Arc::new(Forgotten::default());
        index.set_enabled([NAMESPACE.to_owned()].into());
        index.put_account(NAMESPACE, crowd::SERVICE_ACCOUNT, crowd::ACCOUNT_UID);
        (0..pods).for_each(|number| index.put_pod(pod(number)));
        let cluster = Cluster {
            reviewer: Arc::clone(&reviews) as _,
            configs: Arc::new(Same(Arc::clone(&index))) as _,
            parts: Arc::clone(&stored) as _,
            conditions: Arc::clone(&conditions) as _,
        };
        let key = Arc::new(nudge_core::derived_keys::ContentKey::new(&[1; 32]));
        let mut registry = Registry::default();
        let hub = Hub::new(Arc::clone(&index), cluster, settings, key, &mut registry);
        Self { index, stored, reviews, conditions, hub, registry, revision: Mutex::default() }
    }

    /// The hub's metrics.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    /// Makes `version` the current one of all pods.
    pub(crate) fn activate(&self, version: &VersionStatus) {
        let next = *self.revision.lock() + 1;
        self.activate_as(next, version);
    }

    /// The same, with a revision of one's own choice.
    pub(crate) fn activate_as(&self, next: u64, version: &VersionStatus) {
        let mut revision = self.revision.lock();
        *revision = next;
        let mut config = VersionedConfig::new(CONFIG, VersionedConfigSpec::default());
        config.metadata.namespace = Some(NAMESPACE.to_owned());
        config.metadata.uid = Some("00000000-0000-4000-9000-000000000001".to_owned());
        config.metadata.resource_version = Some(revision.to_string());
        let mut status = VersionedConfigStatus {
            current_version: Some(version.version.clone()),
            versions: vec![version.clone()],
            ..VersionedConfigStatus::default()
        };
        status.internal.revision = *revision;
        config.status = Some(status);
        self.index.put_config(config);
    }
}
