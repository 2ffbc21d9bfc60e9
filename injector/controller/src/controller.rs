//! What the controllers share, and what they remember between two reconciles.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
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

use super::metrics::RolloutMetrics;

/// The field manager of the fields that Nudge writes.
pub(super) const FIELD_MANAGER: &str = "nudge-controller";

/// For how long a leader keeps digests of the form before: while replicas are replaced, some of the release before still need them, and who
/// goes back to that release at once needs them again.
const KEEPS_KEYED: SignedDuration = SignedDuration::from_mins(10);

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
    sees: Mutex<Option<Timestamp>>,
    /// What is known of objects whose version is not sealed yet.
    pub(super) facts: Mutex<HashMap<ConfigKey, Facts>>,
    pub(super) looked: Mutex<HashMap<ConfigKey, (Instant, Looked)>>,
    /// What was seen of the pods of each config, and when last.
    evidence: Mutex<HashMap<ConfigKey, (Evidence, Timestamp)>>,
    /// The beginning of the steady clock.
    started: Instant,
    /// What is remembered of restarted workloads, and of which part of the rollout that is.
    restarts: Mutex<HashMap<ConfigKey, (Part, Memory)>>,
    away: Mutex<Option<Away>>,
    /// Held while a config may begin to move.
    pub(super) beginning: tokio::sync::Mutex<()>,
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
            beginning: tokio::sync::Mutex::default(),
        }
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

    pub(super) fn keep_evidence(&self, key: &ConfigKey, evidence: Evidence) {
        locked(&self.evidence).insert(key.clone(), (evidence, Timestamp::now()));
    }

    /// The time that evidence is measured with.
    pub(super) fn steady(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
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
        *locked(&self.sees) = Some(Timestamp::now());
    }

    /// Since when no change in the namespace can have been missed.
    pub(super) fn sees_since(&self, namespace: &str) -> Option<Timestamp> {
        let blind = self.index.last_blind(namespace).and_then(|ago| SignedDuration::try_from(ago).ok());
        let blind = blind.and_then(|ago| Timestamp::now().checked_sub(ago).ok());
        (*locked(&self.sees)).max(blind)
    }

    /// The seals of a config. The keys are large for a future.
    pub(super) fn seals(&self, key: &ConfigKey, config: &VersionedConfig) -> Box<Seals> {
        Box::new(Seals::new(&self.content_key, key, Identity::of(config)))
    }

    /// From when on digests of the form before are replaced.
    pub(super) fn replaces_keyed_at(&self) -> Time {
        let leads = locked(&self.sees).unwrap_or_else(Timestamp::now);
        Time(leads.checked_add(KEEPS_KEYED).unwrap_or(Timestamp::MAX))
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
