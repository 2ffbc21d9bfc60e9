//! A hub over an index without a cluster, for tests.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::time::Duration;

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

pub(crate) use futures::FutureExt as _;
use futures::future::BoxFuture;
pub(crate) use hyper::StatusCode;
pub(crate) use nudge_api::VersionedConfig;
use nudge_api::{VersionStatus, VersionedConfigSpec, VersionedConfigStatus};
use nudge_cluster::index::Index;
pub(crate) use nudge_core::keys::{ConfigKey, PodKey, PodUid};
pub(crate) use nudge_core::pods::{PodState, Report};
pub(crate) use nudge_protocol::ConfigName;
pub(crate) use nudge_protocol::hub::{ConfigClaim, PollHead, PollRequest, ReportRequest};
use prometheus_client::registry::Registry;
pub(crate) use tokio::time::Instant;

pub(crate) use crate::callers::{Caller, Session};
use crate::callers::{ConnectionOrigin, ReviewError, Reviewer};
use crate::contents::fixtures::{StoredParts, content_key};
use crate::hub::{Cluster, Hub};
pub(crate) use crate::metrics::PollResult;
pub(crate) use crate::polling::ConnectionPolls;
use crate::polling::{ConfigError, ConfigSource};
pub(crate) use crate::reply::{HubReply, PollRefusal};
use crate::reporting::{ConditionWriter, WriteError};
pub(crate) use crate::settings::Settings;

/// Nobody asks it: the tests have their sessions.
pub(crate) struct Nobody;

impl Reviewer for Nobody {
    fn review<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>> {
        Box::pin(async { Err(ReviewError::Refused("no token is reviewed here")) })
    }
}

/// The conditions that were written, by pod.
#[derive(Default)]
pub(crate) struct Written(Mutex<Vec<(PodKey, Report)>>);

impl Written {
    pub(crate) fn take(&self) -> Vec<(PodKey, Report)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl ConditionWriter for Written {
    fn write<'a>(&'a self, pod: &'a PodState, condition: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        self.0.lock().unwrap().push((pod.key(), condition.clone()));
        Box::pin(async { Ok(()) })
    }
}

/// The state of etcd.
#[derive(Clone, Default)]
pub(crate) enum Stores {
    /// The state of the index.
    #[default]
    Known,
    This(Box<VersionedConfig>),
    Nothing,
    /// Nobody answers.
    Silence,
}

/// Answers as a test says.
pub(crate) struct Etcd {
    pub(crate) index: Arc<Index>,
    stores: Mutex<Stores>,
    pub(crate) reads: AtomicUsize,
}

impl Etcd {
    pub(crate) fn stores(&self, stores: Stores) {
        *self.stores.lock().unwrap() = stores;
    }
}

impl ConfigSource for Etcd {
    fn read<'a>(&'a self, key: &'a ConfigKey) -> BoxFuture<'a, Result<Option<VersionedConfig>, ConfigError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let stores = self.stores.lock().unwrap().clone();
        Box::pin(async move {
            match stores {
                Stores::Known => Ok(self.index.config(key).map(|config| (*config).clone())),
                Stores::This(config) => Ok(Some(*config)),
                Stores::Nothing => Ok(None),
                Stores::Silence => std::future::pending().await,
            }
        })
    }
}

/// A session of the pod `web`.
pub(crate) fn session(uid: &str) -> Session {
    session_of(&pod(uid, &[]))
}

pub(crate) fn origin(address: [u8; 4]) -> ConnectionOrigin {
    let address = IpAddr::from(address);
    ConnectionOrigin { address, peer: address.into(), since: Instant::now() }
}

pub(crate) fn session_of(pod: &PodState) -> Session {
    Session {
        caller: Arc::new(caller_of(pod)),
        token_id: "id-1".to_owned(),
        from: origin([127, 0, 0, 1]),
        until: Instant::now() + Duration::from_hours(1),
    }
}

pub(crate) fn caller_of(pod: &PodState) -> Caller {
    let PodState { namespace, name, uid, service_account, .. } = pod.clone();
    Caller { namespace, name, uid, service_account, account_uid: "s".to_owned() }
}

/// A hub, its sources, and its writes.
pub(crate) struct Fixture {
    pub(crate) index: Arc<Index>,
    pub(crate) stored: Arc<StoredParts>,
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) written: Arc<Written>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) writes: u64,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        nudge_tests::log::listen();
        let (index, stored) = (Arc::new(Index::default()), Arc::new(StoredParts::default()));
        let written = Arc::new(Written::default());
        index.set_enabled(["ns".to_owned()].into());
        index.put_account("ns", "app", "s");
        index.put_pod(pod("u", &["shop"]));
        let etcd =
            Arc::new(Etcd { index: Arc::clone(&index), stores: Mutex::default(), reads: AtomicUsize::default() });
        let (parts, conditions) = (Arc::clone(&stored) as _, Arc::clone(&written) as _);
        let cluster = Cluster { reviewer: Arc::new(Nobody), configs: Arc::clone(&etcd) as _, parts, conditions };
        let registry = &mut Registry::default();
        let hub = Hub::new(Arc::clone(&index), cluster, Settings::default(), Arc::new(content_key()), registry);
        Self { index, stored, etcd, written, hub, writes: 0 }
    }

    /// With version 1 as the current one of the pod's config.
    pub(crate) fn with_one() -> Self {
        let mut fixture = Self::new();
        let one = fixture.stored.add("1", b"x");
        fixture.put("shop", 1, Some(&one));
        fixture
    }

    pub(crate) fn put(&mut self, name: &str, revision: u64, current: Option<&VersionStatus>) {
        let config = self.made(name, revision, current);
        self.index.put_config(config);
    }

    /// The config as the next write leaves it.
    pub(crate) fn made(&mut self, name: &str, revision: u64, current: Option<&VersionStatus>) -> VersionedConfig {
        self.writes += 1;
        let mut config = VersionedConfig::new(name, VersionedConfigSpec::default());
        config.metadata.namespace = Some("ns".to_owned());
        config.metadata.uid = Some(format!("uid-{name}"));
        config.metadata.resource_version = Some(self.writes.to_string());
        let mut status = VersionedConfigStatus {
            current_version: current.map(|version| version.version.clone()),
            versions: current.cloned().into_iter().collect(),
            ..VersionedConfigStatus::default()
        };
        status.internal.revision = revision;
        config.status = Some(status);
        config
    }

    /// Lets pods of these service accounts have the config.
    pub(crate) fn admit(&mut self, config: &str, accounts: &[&str]) {
        let key = ConfigKey::new("ns", ConfigName::new(config).unwrap());
        let mut config = (*self.index.config(&key).unwrap()).clone();
        self.writes += 1;
        config.metadata.resource_version = Some(self.writes.to_string());
        config.spec.allowed_service_accounts = Some(accounts.iter().map(|account| (*account).to_owned()).collect());
        self.index.put_config(config);
    }

    pub(crate) async fn poll(&self, request: PollRequest) -> (HubReply, PollResult) {
        self.hub.polling.poll(&session("u"), request, &mut ConnectionPolls::default()).await
    }

    pub(crate) async fn head(&self, request: PollRequest) -> PollHead {
        let (reply, result) = self.poll(request).await;
        assert_eq!((reply.status, result), (StatusCode::OK, PollResult::Changed));
        head_of(reply)
    }
}

pub(crate) fn head_of(reply: HubReply) -> PollHead {
    let bytes = reply.into_bytes().concat();
    let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let length = u32::from_be_bytes(bytes[body..body + 4].try_into().unwrap()) as usize;
    serde_json::from_slice(&bytes[body + 4..body + 4 + length]).unwrap()
}

/// Returns the request of an agent that has processed `head`.
pub(crate) fn after(head: &PollHead) -> PollRequest {
    let claim = |config: &nudge_protocol::hub::PollConfig| ConfigClaim {
        name: config.name.clone(),
        uid: config.uid.clone(),
        revision: config.revision,
        version: config.version.clone(),
        sha256: config.sha256.clone(),
        problem: config.problem.as_ref().map(|problem| problem.reason),
        mounted_secrets: Vec::new(),
    };
    PollRequest {
        configs: head.configs.iter().map(claim).collect(),
        containers_hash: head.containers_hash.clone(),
        wait_seconds: 300,
        ..PollRequest::default()
    }
}

pub(crate) fn pod(uid: &str, configs: &[&str]) -> PodState {
    PodState {
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
        service_account: "app".to_owned(),
        uid: PodUid::new(uid).unwrap(),
        configs: configs.iter().map(|name| ConfigName::new(name).unwrap()).collect(),
        ..PodState::default()
    }
}
