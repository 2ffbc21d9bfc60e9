//! A hub over an index without a cluster: fixtures, and the tests by idea.

mod callers;
mod conditions;
mod contents;
mod lagging;
mod polls;
mod reports;
mod subscribers;
mod trail;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::StatusCode;
use nudge_api::{VersionStatus, VersionedConfig, VersionedConfigSpec, VersionedConfigStatus};
use nudge_core::pods::PodState;
use nudge_protocol::ConfigName;
use nudge_protocol::hub::{Held, PollHead, PollRequest};
use prometheus_client::registry::Registry;

use super::content::tests::hmac_key;
use super::contents::tests::Stored;
use super::metrics::PollResult;
use super::poll::Talk;
use super::*;

/// Nobody asks it: the tests have their sessions.
struct Nobody;

impl Reviewer for Nobody {
    fn review<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>> {
        Box::pin(async { Err(ReviewError::Refused("no token is reviewed here")) })
    }
}

/// The conditions that were written, and to which pods.
#[derive(Default)]
struct Written(Mutex<Vec<(PodKey, Report)>>);

impl Written {
    fn take(&self) -> Vec<(PodKey, Report)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl ConditionWriter for Written {
    fn write<'a>(&'a self, pod: &'a PodState, condition: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        self.0.lock().unwrap().push((pod.key(), condition.clone()));
        Box::pin(async { Ok(()) })
    }
}

/// What etcd has.
#[derive(Clone, Default)]
enum Stores {
    /// What the index has.
    #[default]
    Known,
    This(Box<VersionedConfig>),
    Nothing,
    /// Nobody answers.
    Silence,
}

/// Answers as a test says.
struct Etcd {
    index: Arc<Index>,
    stores: Mutex<Stores>,
    reads: AtomicUsize,
}

impl Etcd {
    fn stores(&self, stores: Stores) {
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
fn session(uid: &str) -> Session {
    session_of(&pod(uid, &[]))
}

fn session_of(pod: &PodState) -> Session {
    Session {
        caller: Arc::new(caller_of(pod)),
        token_id: "id-1".to_owned(),
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        since: Instant::now(),
        until: Instant::now() + Duration::from_hours(1),
    }
}

fn caller_of(pod: &PodState) -> Caller {
    let PodState { namespace, name, uid, service_account, .. } = pod.clone();
    Caller { namespace, name, uid, service_account, account_uid: "s".to_owned() }
}

/// A hub, what it reads, and what it has written.
struct Fixture {
    index: Arc<Index>,
    stored: Arc<Stored>,
    etcd: Arc<Etcd>,
    written: Arc<Written>,
    hub: Arc<Hub>,
    writes: u64,
}

impl Fixture {
    fn new() -> Self {
        nudge_tests::log::listen();
        let (index, stored) = (Arc::new(Index::default()), Arc::new(Stored::default()));
        let written = Arc::new(Written::default());
        index.set_enabled(["ns".to_owned()].into());
        index.put_account("ns", "app", "s");
        index.put_pod(pod("u", &["shop"]));
        let etcd =
            Arc::new(Etcd { index: Arc::clone(&index), stores: Mutex::default(), reads: AtomicUsize::default() });
        let (parts, conditions) = (Arc::clone(&stored) as _, Arc::clone(&written) as _);
        let cluster = Cluster { reviewer: Arc::new(Nobody), configs: Arc::clone(&etcd) as _, parts, conditions };
        let registry = &mut Registry::default();
        let hub = Hub::new(Arc::clone(&index), cluster, Settings::default(), Arc::new(hmac_key()), registry);
        Self { index, stored, etcd, written, hub, writes: 0 }
    }

    /// With version 1 as the current one of the pod's config.
    fn with_one() -> Self {
        let mut fixture = Self::new();
        let one = fixture.stored.add("1", b"x");
        fixture.put("shop", 1, Some(&one));
        fixture
    }

    fn put(&mut self, name: &str, revision: u64, current: Option<&VersionStatus>) {
        let config = self.made(name, revision, current);
        self.index.put_config(config);
    }

    /// The config as the next write leaves it.
    fn made(&mut self, name: &str, revision: u64, current: Option<&VersionStatus>) -> VersionedConfig {
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

    async fn poll(&self, request: PollRequest) -> (Reply, PollResult) {
        self.hub.poll_result(&session("u"), request, &mut Talk::default()).await
    }

    /// Polls for the head.
    async fn head(&self, request: PollRequest) -> PollHead {
        let (reply, result) = self.poll(request).await;
        assert_eq!((reply.status, result), (StatusCode::OK, PollResult::Changed));
        head_of(reply)
    }
}

/// The head of a reply.
fn head_of(reply: Reply) -> PollHead {
    let bytes = reply.into_bytes().concat();
    let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let length = u32::from_be_bytes(bytes[body..body + 4].try_into().unwrap()) as usize;
    serde_json::from_slice(&bytes[body + 4..body + 4 + length]).unwrap()
}

/// What an agent sends that has taken in `head`.
fn after(head: &PollHead) -> PollRequest {
    let held = |config: &nudge_protocol::hub::PollConfig| Held {
        name: config.name.clone(),
        uid: config.uid.clone(),
        revision: config.revision,
        version: config.version.clone(),
        sha256: config.sha256.clone(),
        problem: config.problem.as_ref().map(|problem| problem.reason),
    };
    PollRequest {
        configs: head.configs.iter().map(held).collect(),
        containers_hash: head.containers_hash.clone(),
        wait_seconds: 300,
        ..PollRequest::default()
    }
}

fn pod(uid: &str, configs: &[&str]) -> PodState {
    PodState {
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
        service_account: "app".to_owned(),
        uid: PodUid::new(uid).unwrap(),
        configs: configs.iter().map(|name| ConfigName::new(name).unwrap()).collect(),
        ..PodState::default()
    }
}
