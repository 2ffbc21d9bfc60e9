//! The memory of each config. Forgetting a config is removing its memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use nudge_core::keys::ConfigKey;
use nudge_core::restart::RolloutPart;
use nudge_core::rollout::{Evidence, Subjects};
use nudge_core::versions::{FactsByUid, UnusedTime};
use parking_lot::Mutex;

use super::analysis::AnalysisMemory;
use super::approver_rights::RightsReview;
use super::followed_objects::TextMemory;
use super::number_writes::NumberWrites;
use super::publish_retries::PublishAttempts;
use super::restart_check::RestartMemory;
use super::side_calls::{FailedSideCalls, SideCall};
use super::status_refusal::StatusRefusal;
use super::validation::ValidationMemory;
use crate::failure_cause::FailureCause;

/// The memory of one config.
#[derive(Default)]
pub(crate) struct ConfigMemory {
    /// The last refusal of the whole status.
    pub(crate) refusal: Option<StatusRefusal>,
    /// The facts of objects whose version is not sealed yet.
    pub(crate) facts: FactsByUid,
    /// The rules of the versions, and the verdicts by them.
    pub(crate) validation: ValidationMemory,
    /// The evidence of the pods, and when they were last read.
    pub(crate) evidence: Option<(Arc<Evidence>, Instant)>,
    /// The pods, as they were last seen.
    pub(crate) subjects: Option<Subjects>,
    /// The answers about rights of approvers that are missing.
    pub(crate) rights_review: RightsReview,
    /// The writes of the numbers of pods.
    pub(crate) number_writes: NumberWrites,
    /// The last attempts to publish the objects.
    pub(crate) publish: PublishAttempts,
    /// The text of the config's objects.
    pub(crate) text: TextMemory,
    /// Since when nobody needs the config, if its namespace made it.
    pub(crate) unused: UnusedTime,
    /// The last list after which no version beyond the history limit could be deleted.
    pub(crate) history_in_use: Option<HistoryInUse>,
    /// The workloads that are restarted.
    pub(crate) restarts: RestartMemory,
    /// The failing calls outside of the decision.
    pub(crate) side_calls: FailedSideCalls,
    /// The questions about the version on trial, or of a rehearsal.
    pub(crate) analysis: Option<AnalysisMemory>,
    /// The number of reconciles in a row that found objects of the index missing in the API server.
    pub(crate) outdated_reconciles: u32,
}

/// A history of which no version could be deleted.
#[derive(Clone, Copy)]
pub(crate) struct HistoryInUse {
    /// The generation of the config.
    pub(crate) generation: Option<i64>,
    /// The number of versions.
    pub(crate) count: usize,
    /// The time of the list.
    pub(crate) listed_at: Instant,
}

/// The memories of all configs.
#[derive(Default)]
pub(crate) struct ConfigMemories(Mutex<HashMap<ConfigKey, ConfigMemory>>);

impl ConfigMemories {
    /// Changes the memory of a config, which it creates if there is none.
    pub(crate) fn change<T>(&self, key: &ConfigKey, change: impl FnOnce(&mut ConfigMemory) -> T) -> T {
        change(self.0.lock().entry(key.clone()).or_default())
    }

    /// Reads or changes the memory of a config, if the config has a memory.
    pub(crate) fn get<T>(&self, key: &ConfigKey, change: impl FnOnce(&mut ConfigMemory) -> T) -> Option<T> {
        self.0.lock().get_mut(key).map(change)
    }

    /// Returns the facts of objects that are not part of a sealed version yet, or are part of the version that waits
    /// for approvals.
    pub(crate) fn part_facts(&self, key: &ConfigKey) -> FactsByUid {
        self.get(key, |memory| memory.facts.clone()).unwrap_or_default()
    }

    pub(crate) fn side_call_is_due(&self, key: &ConfigKey, call: SideCall) -> bool {
        self.get(key, |memory| memory.side_calls.is_due(call, Instant::now())).unwrap_or(true)
    }

    pub(crate) fn side_call_succeeded(&self, key: &ConfigKey, call: SideCall) {
        self.get(key, |memory| memory.side_calls.note_success(call));
    }

    /// Notes that a side call failed. `what` is the name of the failed part in messages.
    pub(crate) fn side_call_failed(&self, key: &ConfigKey, call: SideCall, what: &str, cause: FailureCause) {
        tracing::warn!(config = %key, what, cause = cause.text, "call failed; retrying");
        self.change(key, |memory| memory.side_calls.note_failure(call, what, cause, Instant::now(), rand::random()));
    }

    /// Reads or changes the memory about workloads in this part of the config's rollout.
    pub(crate) fn restarts<T>(
        &self,
        key: &ConfigKey,
        part: &RolloutPart,
        change: impl FnOnce(&mut RestartMemory) -> T,
    ) -> T {
        self.change(key, |memory| {
            if memory.restarts.part != *part {
                memory.restarts = RestartMemory { part: part.clone(), ..RestartMemory::default() };
            }
            change(&mut memory.restarts)
        })
    }

    /// Forgets a config that is gone, or whose namespace is not enabled.
    pub(crate) fn forget(&self, key: &ConfigKey) {
        self.0.lock().remove(key);
    }

    pub(crate) fn forget_all(&self) {
        self.0.lock().clear();
    }
}
