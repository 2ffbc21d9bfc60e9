//! The hub: gives agents the versions that their pods are to run, over held polls, and takes their reports.

mod api_server;
mod audit;
mod claims;
mod compose;
mod concurrency;
mod condition;
mod confirm;
mod connection;
mod content;
mod contents;
mod failing;
mod gone;
mod http;
mod identity;
mod metrics;
mod poll;
mod poll_slots;
mod reply;
mod reports;
mod review;
mod server;
mod session;
mod settings;
mod source;
#[cfg(test)]
mod tests;
mod token_hash;
mod turns;
mod view;
mod writer;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::Method;
use kube::Client;
use nudge_cluster::index::Index;
use nudge_core::identity::Identity;
use nudge_core::keys::{ConfigKey, PodKey, PodUid};
use nudge_core::line;
use nudge_core::pods::{PodState, Report, ReportState};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::hub::{MAX_REQUEST_BYTES, POLL_PATH, PollRequest, REPORT_PATH, ReportRequest};
use nudge_server::shares::{Queues, Shares};
use nudge_server::slots::Peer;
use prometheus_client::registry::Registry;
use ring::hmac;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Instrument as _, error_span};

use self::audit::Audit;
use self::confirm::Confirmations;
use self::contents::ContentStore;
use self::gone::Gone;
use self::http::Request;
use self::identity::Identities;
use self::metrics::Metrics;
use self::poll::Talk;
use self::poll_slots::PollSlots;
use self::reply::{Refusal, Reply};
use self::reports::Taken;
use self::session::{Origin, Session};
use self::turns::Wish;
use self::view::views;
use self::writer::{LATER, Plan, Queue};

pub use api_server::{ConditionWriter, KubeConditions, WriteError};
pub use confirm::{ConfigError, ConfigSource, KubeConfigs};
pub use reports::{Reported, Reports};
pub use review::{Caller, KubeReviewer, ReviewError, Reviewer};
pub use server::{bind, serve};
pub use settings::Settings;
pub use source::{KubeParts, Part, PartError, PartSource};

/// How often contents that no pod needs are looked for.
const CHORES: Duration = Duration::from_secs(15);
/// How long a condition waits that a better one is likely to follow: longer than until the pod's next report is taken.
const PASSING: Duration = Duration::from_millis(2500);

/// What the hub asks of the cluster.
pub struct Cluster {
    /// Reviews tokens.
    pub reviewer: Arc<dyn Reviewer>,
    /// Reads configs as they are stored now.
    pub configs: Arc<dyn ConfigSource>,
    /// Reads the objects of versions.
    pub parts: Arc<dyn PartSource>,
    /// Writes the conditions of pods.
    pub conditions: Arc<dyn ConditionWriter>,
}

impl Cluster {
    /// The API server behind `client`.
    pub fn new(client: Client) -> Self {
        Self {
            reviewer: Arc::new(KubeReviewer::new(client.clone())),
            configs: Arc::new(KubeConfigs::new(client.clone())),
            parts: Arc::new(KubeParts::new(client.clone())),
            conditions: Arc::new(KubeConditions::new(client)),
        }
    }
}

/// The hub.
pub struct Hub {
    index: Arc<Index>,
    settings: Settings,
    metrics: Metrics,
    audit: Audit,
    /// Room for the bodies of requests, in bytes.
    bodies: Shares,
    identities: Arc<Identities>,
    /// Who waits for a pod that is new here.
    waiting: Queues<Peer>,
    confirmations: Arc<Confirmations>,
    contents: Arc<ContentStore>,
    poll_slots: Arc<PollSlots>,
    gone: Gone,
    reports: Arc<Reports>,
    queue: Queue,
    writer: Arc<dyn ConditionWriter>,
    draining: watch::Sender<bool>,
}

impl Hub {
    /// A hub of this runtime over `index`, whose only listener for pods and service accounts that are gone it becomes. `key` is the key of the digests.
    pub fn new(
        index: Arc<Index>,
        cluster: Cluster,
        settings: Settings,
        key: Arc<hmac::Key>,
        registry: &mut Registry,
    ) -> Arc<Self> {
        let metrics = Metrics::default();
        metrics.register(registry);
        let hub = Arc::new(Self {
            audit: Audit::default(),
            bodies: Shares::new(settings.body_bytes, MAX_REQUEST_BYTES),
            waiting: Queues::new(settings.waiting),
            identities: Identities::new(cluster.reviewer, &settings, metrics.clone()),
            confirmations: Confirmations::new(Arc::clone(&index), cluster.configs),
            contents: ContentStore::new(cluster.parts, key, &settings, metrics.clone()),
            poll_slots: PollSlots::new(settings.held_per_pod),
            gone: Gone::default(),
            reports: Arc::default(),
            queue: Queue::default(),
            writer: cluster.conditions,
            draining: watch::Sender::new(false),
            index,
            settings,
            metrics,
        });
        let weak: Weak<Self> = Arc::downgrade(&hub);
        hub.index.on_pod_gone(move |pod| {
            if let Some(hub) = weak.upgrade() {
                hub.pod_gone(pod);
            }
        });
        let weak = Arc::downgrade(&hub);
        hub.index.on_account_gone(move |uid| {
            if let Some(hub) = weak.upgrade() {
                hub.gone.add(uid);
            }
        });
        hub
    }

    /// The pod is terminating or gone: its tokens are reviewed anew, and of a gone one nothing is kept.
    fn pod_gone(&self, pod: &PodState) {
        self.identities.forget(&pod.uid);
        let key = pod.key();
        if self.index.pod(&key).is_none_or(|entry| entry.state.uid != pod.uid) {
            self.gone.add(pod.uid.as_str());
            self.reports.remove(&key, &pod.uid);
        }
    }

    /// Whether an agent of the pod waits at this replica now.
    pub fn is_connected(&self, pod_uid: &PodUid) -> bool {
        self.poll_slots.has(pod_uid.as_str())
    }

    /// Reads what pods of the config may be about to need, so that it is there when they are woken.
    pub fn warm(&self, key: &ConfigKey) {
        let Some(config) = self.index.config(key) else { return };
        let (Some(status), Some(uid)) = (&config.status, &config.metadata.uid) else { return };
        if !self.index.is_enabled(&key.namespace) || self.index.subscribers(key).is_empty() {
            return;
        }
        let assignable = [&config.spec.version, &status.target_version, &status.current_version];
        for version in assignable.into_iter().flatten().filter_map(|version| status.version(version)) {
            let secret = version.parts.iter().any(|part| part.kind == nudge_api::PartKind::Secret);
            if !secret || self.index.secrets_allowed(&key.namespace) {
                drop(self.contents.look(key, uid, Identity::of(&config), version));
            }
        }
    }

    async fn answer(&self, request: Request, from: Origin, talk: &mut Talk) -> Reply {
        if *self.draining.borrow() {
            return Reply::draining();
        }
        let Request { method, path, token, body, .. } = request;
        let is_poll = match path.as_str() {
            POLL_PATH => true,
            REPORT_PATH => false,
            _ => return Refusal::NoSuchPath.into(),
        };
        if method != Method::POST {
            return Refusal::MethodNotAllowed.into();
        }
        let body = match body {
            Ok(body) => body,
            Err(refusal) => return refusal.into(),
        };
        let session = match self.session(&token, &body.claims, from).await {
            Ok(session) => session,
            Err(refusal) => return refusal.into(),
        };
        drop(token);
        let caller = &session.caller;
        if is_poll {
            let request: Result<PollRequest, _> = serde_json::from_slice(body.bytes());
            // A held poll must keep neither the buffer that the request was read into nor the room that it had.
            drop(body);
            match request {
                Ok(request) => {
                    let span = error_span!("poll", namespace = caller.namespace, pod = caller.name);
                    Box::pin(self.poll(&session, request, talk)).instrument(span).await
                }
                Err(error) => bad_body(&error),
            }
        } else {
            let report: Result<ReportRequest, _> = serde_json::from_slice(body.bytes());
            drop(body);
            match report {
                Ok(report) => {
                    let span = error_span!("report", namespace = caller.namespace, pod = caller.name);
                    self.report(&session, report).instrument(span).await
                }
                Err(error) => bad_body(&error),
            }
        }
    }

    /// Takes a report, or lets it wait for its time: the reply comes when it, or a newer one of the pod, is taken.
    async fn report(&self, session: &Session, report: ReportRequest) -> Reply {
        let pod = match self.pod_of(session) {
            Ok(entry) => entry.state,
            Err(refusal) => return refusal.into(),
        };
        let pod = match self.reports.put(&pod, report, Instant::now()) {
            Taken::Now => pod,
            Taken::At(time) => {
                drop(pod);
                sleep_until(time).await;
                match self.pod_of(session) {
                    Ok(entry) if self.reports.take(&entry.state, Instant::now()) => entry.state,
                    Ok(_) => return Reply::nothing(),
                    Err(refusal) => return refusal.into(),
                }
            }
        };
        self.metrics.reported();
        match self.condition(&pod) {
            Some(condition) if stands_in(&condition, &pod) => {}
            Some(condition) => {
                let pace = condition::pace(&condition, pod.report.as_ref());
                let delay = if pace == condition::Pace::Passing { PASSING } else { Duration::ZERO };
                self.queue.add(Wish::new(&pod, pace == condition::Pace::Urgent), delay);
            }
            None => self.queue.add(Wish::new(&pod, false), LATER),
        }
        Reply::nothing()
    }

    /// The condition that the pod should have by what its agent has reported to this replica.
    fn condition(&self, pod: &PodState) -> Option<Report> {
        let key = pod.key();
        let reported = self.reports.of(&key, &pod.uid)?;
        if self.is_stale(&pod.namespace) {
            return None;
        }
        let has = |name: &_| view::reported(&reported.report, name);
        let views = views(&self.index, &self.contents, pod, has).all;
        condition::judge(pod, &views, &reported.report, reported.stamp)
    }

    /// What to do about a pod's condition.
    fn plan(&self, key: &PodKey) -> Plan {
        let Some(entry) = self.index.pod(key).filter(|_| self.index.is_enabled(&key.namespace)) else {
            return Plan::Nothing;
        };
        let pod = entry.state;
        let reported = self.reports.of(key, &pod.uid);
        if reported.as_ref().is_some_and(|reported| reported.is_superseded(&pod)) {
            return Plan::Nothing;
        }
        let condition = match self.condition(&pod) {
            Some(condition) => condition,
            None if reported.is_some() => return Plan::Later,
            None if self.is_without_contact(&pod) => condition::without_contact(&pod),
            None => return Plan::Nothing,
        };
        if stands_in(&condition, &pod) { Plan::Nothing } else { Plan::Write(pod, condition) }
    }

    /// The pod's agent has reported neither to this replica nor to another one, which would have written a condition.
    fn is_without_contact(&self, pod: &PodState) -> bool {
        let now = jiff::Timestamp::now().as_second();
        let age = Duration::from_secs(u64::try_from(now.saturating_sub(pod.created)).unwrap_or(0));
        let waiting = self.is_connected(&pod.uid);
        pod.report.is_none() && !pod.finished && !pod.terminating && !waiting && age > self.settings.contact
    }

    /// Plans the condition `NoContact` for pods whose agent has not reported for a while. For the leader alone, every 30 s or so.
    pub fn sweep(&self) {
        for pod in self.index.pods() {
            let key = pod.key();
            let enabled = self.index.is_enabled(&pod.namespace);
            if enabled && self.is_without_contact(&pod) && self.reports.of(&key, &pod.uid).is_none() {
                self.queue.add(Wish::new(&pod, false), Duration::ZERO);
            }
        }
    }

    /// What this replica notes on its Lease: for how long the oldest report has waited that it may write, if that matters.
    pub fn note(&self) -> Option<String> {
        line::note(&self.queue.oldest(), jiff::Timestamp::now())
    }

    /// What agents have reported to this replica.
    pub fn reports(&self) -> &Arc<Reports> {
        &self.reports
    }

    /// Writes pod conditions until dropped.
    async fn write_conditions(self: Arc<Self>) {
        self.queue.write_all(&self.writer, &self.metrics, |key| self.plan(key)).await;
    }

    /// Whether this replica may not know the newest of the namespace: a watch is silent.
    fn is_stale(&self, namespace: &str) -> bool {
        self.index.silent_in(namespace, self.settings.stale).is_some()
    }

    /// Begins to send agents away.
    fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Waits until this agent is to be sent away.
    async fn sent_away(&self) {
        // The sender lives as long as the hub.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
        sleep(self.settings.drain.mul_f64(rand::random_range(0.0..1.0))).await;
    }

    /// Removes reports of pods that are gone. Where another replica has overwritten a condition by an earlier report, it is written again; and
    /// one that shows no success is looked at again, because it may be of what was assigned for a moment only, and no report follows.
    fn tend_reports(&self) {
        self.reports.retain(|key, reported| {
            let pod = self.index.pod(key).map(|entry| entry.state).filter(|pod| pod.uid == reported.uid);
            if let Some(pod) = &pod {
                let succeeds = |stands: &Report| stands.state == ReportState::Acknowledged;
                if reported.was_overwritten_by_earlier(pod) {
                    self.queue.add(Wish::new(pod, false), Duration::ZERO);
                } else if !pod.report.as_ref().is_none_or(succeeds) {
                    self.queue.add(Wish::new(pod, false), PASSING);
                }
            }
            pod.is_some()
        });
    }

    /// Cleans up now and then.
    async fn chores(self: Arc<Self>) {
        loop {
            sleep(CHORES).await;
            let mut needed: HashMap<String, [Option<String>; 2]> = HashMap::new();
            for key in self.index.subscribed() {
                if let Some(config) = self.index.config(&key)
                    && let (Some(status), Some(uid)) = (&config.status, &config.metadata.uid)
                {
                    needed.insert(uid.clone(), [status.current_version.clone(), status.target_version.clone()]);
                }
            }
            self.tend_reports();
            self.confirmations.retain(|key| self.index.config(key).is_some());
            self.contents.retain(|uid, version| {
                needed.get(uid).is_some_and(|versions| versions.iter().flatten().any(|needed| needed == version))
            });
        }
    }
}

fn bad_body(error: &serde_json::Error) -> Reply {
    let text = one_line(&error.to_string(), 200);
    Refusal::BadRequest(format!("the body is not what this path takes: {text}")).into()
}

/// Whether the pod has this condition already.
fn stands_in(condition: &Report, pod: &PodState) -> bool {
    pod.report.as_ref().is_some_and(|report| report.is_same(condition))
}
