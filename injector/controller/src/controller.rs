//! The common state of the controllers, and the leader's memory between two reconciles.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;
use nudge_api::VersionedConfig;
use nudge_cluster::events::EventRecorder;
use nudge_cluster::index::Index;
use nudge_cluster::queue::Queue;
use nudge_cluster::turns::Turns;
use nudge_core::config::is_urgent;
use nudge_core::derived_keys::Keys;
use nudge_core::hub_health::Outage;
use nudge_core::hub_health::waiting_reports::ReplicaNotes;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::rollout::{Millis, SteadyTime};
use nudge_core::versions::{MAX_UNUSED_TIME, Seals};
use parking_lot::Mutex;

use super::memory::{ApproverRights, ConfigMemories, MoveOrder, WorkloadLists};
use super::metrics::RolloutMetrics;

/// The field manager of the fields that Nudge writes.
pub(super) const FIELD_MANAGER: &str = "nudge-controller";

/// Returns parameters of a write that name the field manager.
pub(super) fn written_by_us() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// The common state of the controllers.
pub struct Controller {
    pub(super) client: Client,
    pub(super) index: Arc<Index>,
    pub(super) events: EventRecorder,
    pub(super) keys: Keys,
    pub(super) metrics: RolloutMetrics,
    silence: Duration,
    /// The time after which an unused config that its namespace made is deleted.
    pub(super) max_unused_time: Duration,
    /// The beginning of the steady clock.
    started: Instant,
    /// Since when this replica leads with a complete index.
    led_since: Mutex<Option<Instant>>,
    /// The configs to reconcile.
    pub(super) queue: Arc<Queue>,
    pub(super) move_order: MoveOrder,
    pub(super) memories: ConfigMemories,
    /// The configs with a version that is being validated.
    pub(super) validating: Mutex<HashSet<ConfigKey>>,
    /// The turns of validations: one at a time, of one namespace after another, since each may take a processor for a
    /// second.
    pub(super) validation_turns: Turns,
    /// The earliest time of the next write of mere numbers.
    pub(super) number_writes_free_at: Mutex<Option<Instant>>,
    /// The time when versions of each namespace were last to be pruned.
    pub(super) pruned_at: Mutex<HashMap<String, Instant>>,
    pub(super) workload_lists: WorkloadLists,
    /// The nodes that were not Ready at the last list of all nodes, and the time of that list.
    pub(super) unready_nodes: Mutex<Option<(Instant, BTreeSet<String>)>>,
    /// The notes of the hub's replicas on their Lease: for how long reports wait there.
    pub(super) hub_notes: Mutex<ReplicaNotes>,
    /// The outage of the hub, if any.
    pub(super) hub_outage: Mutex<Outage>,
    pub(super) approver_rights: Mutex<ApproverRights>,
    /// The configs whose approvals may have another status.
    pub(super) approval_queue: Queue,
}

impl Controller {
    /// Returns controllers over `index`; `instance` names this replica in Events. Nothing is deleted because of an
    /// index that was not confirmed for longer than `silence`.
    pub fn new(
        client: Client,
        index: Arc<Index>,
        keys: Keys,
        instance: &str,
        silence: Duration,
        metrics: RolloutMetrics,
    ) -> Self {
        let events = EventRecorder::new(client.clone(), instance);
        let weak_index = Arc::downgrade(&index);
        let queue = Arc::new(Queue::new(move |key: &ConfigKey| {
            weak_index
                .upgrade()
                .and_then(|index| index.config(key))
                .is_some_and(|config| is_urgent(&config, Timestamp::now()))
        }));
        Self {
            workload_lists: WorkloadLists::new(client.clone()),
            client,
            events,
            keys,
            metrics,
            silence,
            max_unused_time: MAX_UNUSED_TIME,
            started: Instant::now(),
            led_since: Mutex::default(),
            move_order: MoveOrder::new(Arc::clone(&index), Arc::clone(&queue)),
            index,
            queue,
            memories: ConfigMemories::default(),
            validating: Mutex::default(),
            validation_turns: Turns::new(1, 1),
            number_writes_free_at: Mutex::default(),
            pruned_at: Mutex::default(),
            unready_nodes: Mutex::default(),
            hub_notes: Mutex::default(),
            hub_outage: Mutex::default(),
            approver_rights: Mutex::default(),
            approval_queue: Queue::default(),
        }
    }

    /// Sets the time after which an unused config that its namespace made is deleted.
    #[must_use]
    pub fn with_max_unused_time(self, max_unused_time: Duration) -> Self {
        Self { max_unused_time, ..self }
    }

    /// Notes that from now on this replica leads, and that its index is complete.
    pub(super) fn begin_to_lead(&self) {
        *self.led_since.lock() = Some(Instant::now());
    }

    /// Returns the time since which no change in the namespace can have been missed.
    pub(super) fn complete_since(&self, namespace: &str) -> Option<Instant> {
        (*self.led_since.lock()).max(self.index.last_blind(namespace))
    }

    /// Returns whether the known state of the namespace is recent enough to delete something because of it.
    pub(super) fn may_delete_in(&self, namespace: &str) -> bool {
        self.index.silent_watch_in(namespace, self.silence).is_none()
    }

    /// Returns the current time of the steady clock, which evidence is measured with.
    pub(super) fn steady(&self) -> SteadyTime {
        self.steady_at(Instant::now()).unwrap_or(SteadyTime(Millis::MAX))
    }

    /// Returns the steady time of a moment; `None` before this replica began.
    pub(super) fn steady_at(&self, instant: Instant) -> Option<SteadyTime> {
        Millis::try_from(instant.checked_duration_since(self.started)?.as_millis()).ok().map(SteadyTime)
    }

    /// Returns the seals of a config, in a box, because the keys are large for a future.
    pub(super) fn seals(&self, key: &ConfigKey, config: &VersionedConfig) -> Box<Seals> {
        Box::new(Seals::new(&self.keys.content, key, Identity::of(config)))
    }

    /// Returns how long the oldest report has waited in a hub, if it may be of this namespace.
    pub(super) fn report_wait(&self, namespace: &str) -> Millis {
        let longest = self.hub_notes.lock().longest_wait(namespace, Instant::now());
        Millis::try_from(longest.as_millis()).unwrap_or(Millis::MAX)
    }

    /// Forgets all that was observed, as a new leader must.
    pub(super) fn forget(&self) {
        self.memories.forget_all();
        *self.unready_nodes.lock() = None;
        *self.hub_outage.lock() = Outage::default();
        *self.number_writes_free_at.lock() = None;
        self.move_order.forget();
        *self.approver_rights.lock() = ApproverRights::default();
        self.approval_queue.clear();
        self.pruned_at.lock().clear();
    }
}
