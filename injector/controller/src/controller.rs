//! What the controllers share, and what they remember between two reconciles.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::PostParams;
use nudge_api::VersionedConfig;
use nudge_cluster::call::CallError;
use nudge_cluster::events::EventRecorder;
use nudge_cluster::index::Index;
use nudge_cluster::queue::Queue;
use nudge_cluster::turns::Turns;
use nudge_core::hub_away::Outage;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::line::Lines;
use nudge_core::pods::PodState;
use nudge_core::rollout::{Evidence, Millis, Subjects};
use nudge_core::versions::Seals;
use ring::hmac;

use super::approvers::Approvers;
use super::cause::Cause;
use super::chores::Chore;
use super::counting::Counting;
use super::listings::Listings;
use super::locked::locked;
use super::memories::Memories;
use super::metrics::RolloutMetrics;
use super::turns::{goes_first, moves_now};

/// The field manager of the fields that Nudge writes.
pub(super) const FIELD_MANAGER: &str = "nudge-controller";

pub(super) fn written_by_us() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// What the controllers share.
pub struct Controller {
    pub(super) client: Client,
    pub(super) index: Arc<Index>,
    pub(super) events: EventRecorder,
    pub(super) content_key: Arc<hmac::Key>,
    pub(super) metrics: RolloutMetrics,
    pub(super) silence: Duration,
    /// Since when this replica leads and sees.
    sees: Mutex<Option<Instant>>,
    /// What is remembered of each config.
    pub(super) memories: Memories,
    /// Whose versions are being judged.
    pub(super) judging: Mutex<HashSet<ConfigKey>>,
    /// One at a time, of one namespace after another: each may take a processor for a second.
    pub(super) judgements: Turns,
    /// When versions of each namespace were last to be pruned.
    pub(super) pruned: Mutex<HashMap<String, Instant>>,
    /// The beginning of the steady clock.
    started: Instant,
    pub(super) listings: Listings,
    away: Mutex<Option<Away>>,
    /// What the replicas of the hub note on their Lease.
    pub(super) lines: Mutex<Lines>,
    /// Why the hub is away, if it is.
    pub(super) outage: Mutex<Outage>,
    /// The configs to reconcile.
    pub(super) queue: Arc<Queue>,
    /// The namespaces in which a config may begin to move, and who waits there for its turn.
    beginning: Mutex<HashMap<String, BTreeSet<ConfigKey>>>,
    /// Who waits for a config that is being moved, and the generation of its spec then.
    waiting: Mutex<HashMap<ConfigKey, BTreeMap<ConfigKey, Option<i64>>>>,
    pub(super) counting: Mutex<Counting>,
    /// Who may approve versions.
    pub(super) approvers: Mutex<Approvers>,
    /// The configs whose approvals may have another status.
    pub(super) approval_queue: Queue,
}

/// The right to begin a move in a namespace, until it is dropped. No other config of the namespace may begin then: only these share pods.
pub(super) struct Begins<'a> {
    controller: &'a Controller,
    namespace: String,
}

impl Drop for Begins<'_> {
    fn drop(&mut self) {
        let waiting = locked(&self.controller.beginning).remove(&self.namespace);
        waiting.into_iter().flatten().for_each(|key| self.controller.queue.add(key, Duration::ZERO));
    }
}

/// The nodes that were not Ready when all were listed last.
#[derive(Clone, Debug)]
pub(super) struct Away {
    pub(super) at: Instant,
    pub(super) nodes: Arc<BTreeSet<String>>,
}

impl Controller {
    /// Controllers over `index`; `instance` names this replica in Events.
    /// Nothing is deleted because of an index that was not confirmed for longer than `silence`.
    pub fn new(
        client: Client,
        index: Arc<Index>,
        content_key: Arc<hmac::Key>,
        instance: &str,
        silence: Duration,
        metrics: RolloutMetrics,
    ) -> Self {
        let events = EventRecorder::new(client.clone(), instance);
        let known = Arc::downgrade(&index);
        let is_urgent = move |key: &ConfigKey| {
            let config = known.upgrade().and_then(|index| index.config(key));
            config.is_some_and(|config| goes_first(&config))
        };
        Self {
            client,
            index,
            events,
            content_key,
            metrics,
            silence,
            sees: Mutex::default(),
            memories: Memories::default(),
            judging: Mutex::default(),
            judgements: Turns::new(1, 1),
            pruned: Mutex::default(),
            started: Instant::now(),
            listings: Listings::default(),
            away: Mutex::default(),
            queue: Arc::new(Queue::new(is_urgent)),
            lines: Mutex::default(),
            outage: Mutex::default(),
            beginning: Mutex::default(),
            waiting: Mutex::default(),
            counting: Mutex::default(),
            approvers: Mutex::default(),
            approval_queue: Queue::default(),
        }
    }

    /// The right to begin a move in the config's namespace; `None` while another config has it. Nobody waits for it: the config comes back into
    /// the queue when it is free.
    pub(super) fn begins(&self, key: &ConfigKey) -> Option<Begins<'_>> {
        use std::collections::hash_map::Entry;
        match locked(&self.beginning).entry(key.namespace.clone()) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().insert(key.clone());
                None
            }
            Entry::Vacant(free) => {
                free.insert(BTreeSet::new());
                Some(Begins { controller: self, namespace: key.namespace.clone() })
            }
        }
    }

    /// The config comes back into the queue when the other one, which shares pods with it, is not being moved any more, or its spec changes.
    pub(super) fn waits_for(&self, key: &ConfigKey, other: &ConfigKey) {
        let generation = self.index.config(other).and_then(|config| config.metadata.generation);
        locked(&self.waiting).entry(other.clone()).or_default().insert(key.clone(), generation);
        // It may have ended before that.
        self.changed(other);
    }

    /// The config has changed: others may have waited for that.
    pub fn changed(&self, key: &ConfigKey) {
        let mut waiting = locked(&self.waiting);
        let Some(all) = waiting.get_mut(key) else { return };
        let config = self.index.config(key);
        let moves = config.as_ref().is_some_and(|config| config.status.as_ref().is_some_and(moves_now));
        let generation = config.and_then(|config| config.metadata.generation);
        let free = all.extract_if(.., |_, known| !moves || *known != generation);
        let free: Vec<ConfigKey> = free.map(|(key, _)| key).collect();
        if all.is_empty() {
            waiting.remove(key);
        }
        drop(waiting);
        for key in free {
            self.queue.add(key, Duration::ZERO);
        }
    }

    /// The evidence so far. Where changes may have been missed since the last look, nobody looked.
    pub(super) fn evidence(&self, key: &ConfigKey) -> Arc<Evidence> {
        let known = self.memories.known(key, |memory| memory.evidence.clone()).flatten();
        let Some((mut evidence, looked)) = known else { return Arc::default() };
        if self.sees_since(&key.namespace).is_some_and(|since| since > looked) {
            Arc::make_mut(&mut evidence).blind();
        }
        evidence
    }

    /// With the moment before the pods were looked at: what was not seen since then was missed.
    pub(super) fn keep_evidence(&self, key: &ConfigKey, (evidence, looked): (Evidence, Instant)) {
        self.memories.change(key, |memory| memory.evidence = Some((Arc::new(evidence), looked)));
    }

    /// These pods as the rollout of the config sees them. What has not changed since the last look is taken from there.
    pub(super) fn subjects(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
        nodes_away: &BTreeSet<String>,
    ) -> Subjects {
        let known = self.memories.known(key, |memory| memory.subjects.take()).flatten();
        let mut subjects = known.unwrap_or_default();
        subjects.update(pods, key.name.as_str(), Identity::of(config), nodes_away);
        subjects
    }

    pub(super) fn keep_subjects(&self, key: &ConfigKey, subjects: Subjects) {
        self.memories.change(key, |memory| memory.subjects = Some(subjects));
    }

    /// Whether the chore may be tried now: what failed waits for a while.
    pub(super) fn chore_is_due(&self, key: &ConfigKey, chore: Chore) -> bool {
        self.memories.known(key, |memory| memory.chores.is_due(chore, Instant::now())).unwrap_or(true)
    }

    pub(super) fn chore_succeeded(&self, key: &ConfigKey, chore: Chore) {
        self.memories.known(key, |memory| memory.chores.succeeded(chore));
    }

    /// Notes that a chore failed: `what` says which part of it, `quotes` whether the API server's answer may be repeated.
    pub(super) fn chore_failed(&self, key: &ConfigKey, chore: Chore, what: &str, error: &CallError, quotes: bool) {
        let cause = Cause::of(error, quotes);
        tracing::warn!(config = %key, what, cause = cause.text, "call failed; retrying");
        self.memories.change(key, |memory| memory.chores.failed(chore, what, cause, Instant::now(), rand::random()));
    }

    /// The time that evidence is measured with.
    pub(super) fn steady(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// The same of another moment; `None` before this replica began.
    pub(super) fn steady_at(&self, at: Instant) -> Option<Millis> {
        Millis::try_from(at.checked_duration_since(self.started)?.as_millis()).ok()
    }

    /// The nodes that were not Ready when all were listed last.
    pub(super) fn away(&self) -> Option<Away> {
        locked(&self.away).clone()
    }

    pub(super) fn set_away(&self, away: Away) {
        *locked(&self.away) = Some(away);
    }

    /// From now on this replica leads, and its index is complete.
    pub fn begin(&self) {
        *locked(&self.sees) = Some(Instant::now());
    }

    /// Since when no change in the namespace can have been missed.
    fn sees_since(&self, namespace: &str) -> Option<Instant> {
        (*locked(&self.sees)).max(self.index.last_blind(namespace))
    }

    /// The seals of a config. The keys are large for a future.
    pub(super) fn seals(&self, key: &ConfigKey, config: &VersionedConfig) -> Box<Seals> {
        Box::new(Seals::new(&self.content_key, key, Identity::of(config)))
    }

    /// Forgets what is known of a config that is gone, or whose namespace is not enabled.
    pub(super) fn forget_config(&self, key: &ConfigKey) {
        self.memories.forget(key);
        locked(&self.counting).forget(key);
        locked(&self.approvers).rest(key);
    }

    /// Forgets what was observed before, as a new leader must.
    pub fn forget(&self) {
        self.memories.forget_all();
        *locked(&self.away) = None;
        *locked(&self.outage) = Outage::default();
        *locked(&self.counting) = Counting::default();
        locked(&self.waiting).clear();
        *locked(&self.approvers) = Approvers::default();
        self.approval_queue.clear();
        locked(&self.pruned).clear();
    }

    /// Whether what is known of the namespace is recent enough to delete something because of it.
    pub(super) fn knows(&self, namespace: &str) -> bool {
        self.index.silent_in(namespace, self.silence).is_none()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use hyper::http;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use kube::client::Body;
    use nudge_api::{RolloutSpec, VersionedConfigStatus};
    use nudge_core::requester::Requesters;
    use nudge_core::rollout::{Now, Observation, Restarts, Rollout, next};
    use tower::service_fn;

    use super::*;

    /// A controller that can read nothing.
    pub(crate) fn blind(index: Arc<Index>) -> Controller {
        let service = service_fn(|_: http::Request<Body>| async {
            http::Response::builder().status(500).body(Body::from(Vec::new()))
        });
        let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        Controller::new(client, index, key, "a", silence, RolloutMetrics::default())
    }

    #[tokio::test]
    async fn what_was_missed_after_the_pods_were_looked_at_was_missed() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let controller = blind(index);
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let began = Instant::now();
        controller.begin();
        let (restart, time) = (Restarts::Done, Time(Timestamp::now()));
        let seen = Observation {
            spec: &RolloutSpec::default(),
            generation: 1,
            named: Some("1"),
            digest: "sha256:0",
            requested: "1",
            at_once: None,
            requesters: &Requesters::default(),
            pods: &[],
            neighbours: &HashMap::new(),
            background: None,
            waiting_for: None,
            approvals: &[],
            withheld: None,
            measured: None,
            publishes: false,
            published: None,
            current_since: None,
            restart: &restart,
            line: 0,
            hub_away: None,
        };
        let status =
            VersionedConfigStatus { current_version: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        let mut evidence = Evidence::default();
        next(Rollout::from_status(&status, &time), &mut evidence, &seen, Now { time: &time, steady: 7 });
        // That it was looked at is in memory alone.
        let looked = |at| {
            controller.keep_evidence(&key, (evidence.clone(), at));
            format!("{:?}", controller.evidence(&key)).contains("looked: Some(7)")
        };
        assert!(looked(Instant::now()));
        assert!(!looked(began), "this replica began to see after that");
    }

    #[tokio::test]
    async fn a_namespace_waits_for_no_other_and_keeps_no_worker() {
        let controller = blind(Arc::default());
        let key = |namespace: &str, name: &str| ConfigKey::parse(namespace, name).unwrap();
        let held = controller.begins(&key("a", "one")).unwrap();
        assert!(controller.begins(&key("a", "two")).is_none() && controller.begins(&key("a", "three")).is_none());
        assert!(controller.begins(&key("b", "one")).is_some());
        assert!(controller.queue.is_empty());
        drop(held);
        assert_eq!(controller.queue.len(), 2, "both come back");
        assert!(controller.begins(&key("a", "two")).is_some());
        assert!(locked(&controller.beginning).is_empty(), "nothing is kept of namespaces in which nobody begins");
    }

    #[tokio::test]
    async fn one_that_may_not_begin_is_not_looked_at() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let config = serde_json::json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "spec": {"version": "2"}, "status": {"currentVersion": "1"},
        });
        index.put_config(serde_json::from_value(config).unwrap());
        let controller = Arc::new(blind(index));
        let (shop, other) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("ns", "other").unwrap());
        controller.keep_subjects(&shop, Subjects::default());
        let held = controller.begins(&other);
        assert_eq!(Box::pin(controller.reconcile(&shop)).await.unwrap(), crate::Again::Never);
        let kept = controller.memories.known(&shop, |memory| memory.subjects.is_some());
        assert_eq!(kept, Some(true), "a look takes them");
        drop(held);
        assert_eq!(controller.queue.len(), 1, "it comes back");
    }

    #[tokio::test]
    async fn who_waits_for_another_config_is_woken_by_it() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let controller = blind(Arc::clone(&index));
        let (shop, keys) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("ns", "keys").unwrap());
        let mut version = 0;
        let mut put = |stage: Option<&str>, yields: bool, generation: i64| {
            version += 1;
            let config = serde_json::json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {},
                "metadata": {"name": "keys", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string(), "generation": generation},
                "status": {"currentVersion": "1", "targetVersion": "2", "rollout": {"stage": stage}, "internal": {"yields": yields}},
            });
            index.put_config(serde_json::from_value(config).unwrap());
            controller.changed(&keys);
        };
        let woken = || {
            let woken = controller.queue.len() == 1;
            controller.queue.clear();
            woken
        };
        for (stage, yields, generation, wakes) in [
            (Some("Moving"), false, 1, false),
            (Some("Baking"), false, 1, false),
            (Some("Baking"), false, 2, true),
            (Some("Baking"), true, 1, true),
            (None, false, 1, true),
        ] {
            put(Some("Moving"), false, 1);
            controller.waits_for(&shop, &keys);
            assert!(!woken());
            put(stage, yields, generation);
            assert_eq!(woken(), wakes, "{stage:?} {yields} {generation}");
        }
        assert!(locked(&controller.waiting).is_empty());
        controller.waits_for(&shop, &keys);
        assert!(woken(), "it has ended before");
        put(Some("Moving"), false, 1);
        controller.waits_for(&shop, &keys);
        index.remove_config(&keys);
        controller.changed(&keys);
        assert!(woken());
    }
}
