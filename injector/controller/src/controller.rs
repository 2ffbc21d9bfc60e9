//! What the controllers share, and what they remember between two reconciles.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;
use nudge_api::VersionedConfig;
use nudge_cluster::events::EventRecorder;
use nudge_cluster::index::Index;
use nudge_core::identity::Identity;
use nudge_core::keys::{ConfigKey, PublishedMeta};
use nudge_core::restart::{Memory, Part};
use nudge_core::rollout::{Evidence, Millis};
use nudge_core::versions::{Facts, Seals};
use ring::hmac;
use tokio::sync::OwnedMutexGuard;

use super::metrics::RolloutMetrics;

/// The field manager of the fields that Nudge writes.
pub(super) const FIELD_MANAGER: &str = "nudge-controller";

/// For how long a leader keeps digests of the form before: while replicas are replaced, some of the release before still need them, and who
/// goes back to that release at once needs them again.
const KEEPS_KEYED: Duration = Duration::from_mins(10);

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
    /// What is known of objects whose version is not sealed yet.
    pub(super) facts: Mutex<HashMap<ConfigKey, Facts>>,
    pub(super) looked: Mutex<HashMap<ConfigKey, (Instant, Looked)>>,
    /// What was seen of the pods of each config, and when last.
    evidence: Mutex<HashMap<ConfigKey, (Evidence, Instant)>>,
    /// The beginning of the steady clock.
    started: Instant,
    /// What is remembered of restarted workloads, and of which part of the rollout that is.
    restarts: Mutex<HashMap<ConfigKey, (Part, Memory)>>,
    away: Mutex<Option<Away>>,
    /// Held while a config of the namespace may begin to move.
    beginning: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// What was last read of a published ConfigMap, which is read again only when something has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    /// The version to publish then.
    pub(super) version: String,
    /// What the watch showed of it then; `None` if it was missing or does not have our label.
    pub(super) meta: Option<PublishedMeta>,
}

/// The nodes that were not Ready when all were listed last.
#[derive(Clone, Debug)]
pub(super) struct Away {
    pub(super) at: Instant,
    pub(super) nodes: Arc<BTreeSet<String>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        Self {
            client,
            index,
            events,
            content_key,
            metrics,
            silence,
            sees: Mutex::default(),
            facts: Mutex::default(),
            looked: Mutex::default(),
            evidence: Mutex::default(),
            started: Instant::now(),
            restarts: Mutex::default(),
            away: Mutex::default(),
            beginning: Mutex::default(),
        }
    }

    /// Waits until no other config of the namespace may begin to move. Only configs of one namespace share pods.
    pub(super) async fn begins_in(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut all = locked(&self.beginning);
            // Those that nobody holds or waits for.
            all.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(all.entry(namespace.to_owned()).or_default())
        };
        lock.lock_owned().await
    }

    pub(super) fn looked(&self, key: &ConfigKey) -> Option<(Instant, Looked)> {
        locked(&self.looked).get(key).cloned()
    }

    pub(super) fn set_looked(&self, key: &ConfigKey, looked: Looked) {
        locked(&self.looked).insert(key.clone(), (Instant::now(), looked));
    }

    /// What is remembered in this part of the rollout, so that it is not tried every second.
    pub(super) fn restarts_so_far(&self, key: &ConfigKey, part: &Part) -> Memory {
        let known = locked(&self.restarts).get(key).filter(|(known, _)| known == part).cloned();
        known.map(|(_, memory)| memory).unwrap_or_default()
    }

    pub(super) fn keep_restarts(&self, key: &ConfigKey, part: Part, memory: Memory) {
        if memory.is_empty() {
            self.forget_restarts(key);
        } else {
            locked(&self.restarts).insert(key.clone(), (part, memory));
        }
    }

    pub(super) fn forget_restarts(&self, key: &ConfigKey) {
        locked(&self.restarts).remove(key);
    }

    /// The evidence so far. Where changes may have been missed since the last look, nobody looked.
    pub(super) fn evidence(&self, key: &ConfigKey) -> Evidence {
        let Some((mut evidence, looked)) = locked(&self.evidence).get(key).cloned() else { return Evidence::default() };
        if self.sees_since(&key.namespace).is_some_and(|since| since > looked) {
            evidence.blind();
        }
        evidence
    }

    /// With the moment before the pods were looked at: what was not seen since then was missed.
    pub(super) fn keep_evidence(&self, key: &ConfigKey, evidence: (Evidence, Instant)) {
        locked(&self.evidence).insert(key.clone(), evidence);
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

    /// From when on digests of the form before are replaced.
    pub(super) fn replaces_keyed_at(&self) -> Time {
        let leads = locked(&self.sees).map_or(Duration::ZERO, |since| since.elapsed());
        Time(Timestamp::now().checked_add(KEEPS_KEYED.saturating_sub(leads)).unwrap_or(Timestamp::MAX))
    }

    /// Forgets what is known of a config that is gone, or whose namespace is not enabled.
    pub(super) fn forget_config(&self, key: &ConfigKey) {
        locked(&self.facts).remove(key);
        locked(&self.looked).remove(key);
        locked(&self.evidence).remove(key);
        self.forget_restarts(key);
    }

    /// Forgets what was observed before, as a new leader must.
    pub fn forget(&self) {
        locked(&self.facts).clear();
        locked(&self.looked).clear();
        locked(&self.evidence).clear();
        locked(&self.restarts).clear();
        *locked(&self.away) = None;
    }

    /// Whether what is known of the namespace is recent enough to delete something because of it.
    pub(super) fn knows(&self, namespace: &str) -> bool {
        self.index.silent_in(namespace, self.silence).is_none()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use hyper::http;
    use kube::client::Body;
    use nudge_api::{RolloutSpec, VersionedConfigStatus};
    use nudge_core::rollout::{Now, Observation, Restarts, Rollout, next};
    use tokio::time::timeout;
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
            requested: "1",
            at_once: None,
            pods: &[],
            neighbours: &HashMap::new(),
            background: None,
            waiting_for: None,
            published: None,
            current_since: None,
            restart: &restart,
        };
        let status = VersionedConfigStatus { current: Some("1".to_owned()), ..VersionedConfigStatus::default() };
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

    #[tokio::test(start_paused = true)]
    async fn a_namespace_waits_for_no_other() {
        let controller = blind(Arc::default());
        let held = controller.begins_in("a").await;
        let begins = |namespace: &'static str| timeout(Duration::from_secs(1), controller.begins_in(namespace));
        assert!(begins("a").await.is_err() && begins("b").await.is_ok());
        drop(held);
        assert!(begins("a").await.is_ok());
        for number in 0..100 {
            drop(controller.begins_in(&number.to_string()).await);
        }
        assert_eq!(locked(&controller.beginning).len(), 1, "locks that nobody holds are dropped");
    }
}
