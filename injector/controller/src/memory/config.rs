//! The memory of each config. Forgetting a config is removing its memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use nudge_cluster::call::CallError;
use nudge_core::keys::ConfigKey;
use nudge_core::restart::Part;
use nudge_core::rollout::{Evidence, Subjects};
use nudge_core::versions::Facts;
use parking_lot::Mutex;

use super::analysis::AnalysisMemory;
use super::approver_rights::RightsReview;
use super::number_writes::NumberWrites;
use super::publish_attempts::PublishAttempts;
use super::restart_look::RestartMemory;
use super::side_calls::{FailedSideCalls, SideCall};
use super::status_refusal::StatusRefusal;
use super::validation::ValidationMemory;
use crate::failure_cause::FailureCause;

/// The memory of one config.
#[derive(Default)]
pub(crate) struct ConfigMemory {
    /// The last refusal of its whole status.
    pub(crate) refusal: Option<StatusRefusal>,
    /// What is known of objects whose version is not sealed yet.
    pub(crate) facts: Facts,
    /// The rules of its versions, and the verdicts by them.
    pub(crate) validation: ValidationMemory,
    /// What was seen of its pods, and when last.
    pub(crate) evidence: Option<(Arc<Evidence>, Instant)>,
    /// Its pods, as they were seen last.
    pub(crate) subjects: Option<Subjects>,
    /// Which answers about rights of its approvers are missing.
    pub(crate) rights_review: RightsReview,
    /// When numbers of its pods are written.
    pub(crate) number_writes: NumberWrites,
    /// The last attempts to publish its objects.
    pub(crate) publish: PublishAttempts,
    /// The workloads that are restarted.
    pub(crate) restarts: RestartMemory,
    /// What fails beside the decision about it.
    pub(crate) side_calls: FailedSideCalls,
    /// What was asked about its version on trial, or in a rehearsal.
    pub(crate) analysis: Option<AnalysisMemory>,
    /// For how many looks the API server has not had the objects that the index shows.
    pub(crate) outdated_looks: u32,
}

/// The memories of all configs.
#[derive(Default)]
pub(crate) struct ConfigMemories(Mutex<HashMap<ConfigKey, ConfigMemory>>);

impl ConfigMemories {
    /// Changes the memory of a config, which begins with that.
    pub(crate) fn change<T>(&self, key: &ConfigKey, change: impl FnOnce(&mut ConfigMemory) -> T) -> T {
        change(self.0.lock().entry(key.clone()).or_default())
    }

    /// Reads or changes the memory of a config, if there is one.
    pub(crate) fn get<T>(&self, key: &ConfigKey, change: impl FnOnce(&mut ConfigMemory) -> T) -> Option<T> {
        self.0.lock().get_mut(key).map(change)
    }

    /// Returns what is known of objects whose version is not sealed yet, and of those of the version that waits for approvals.
    pub(crate) fn facts(&self, key: &ConfigKey) -> Facts {
        self.get(key, |memory| memory.facts.clone()).unwrap_or_default()
    }

    pub(crate) fn side_call_is_due(&self, key: &ConfigKey, call: SideCall) -> bool {
        self.get(key, |memory| memory.side_calls.is_due(call, Instant::now())).unwrap_or(true)
    }

    pub(crate) fn side_call_succeeded(&self, key: &ConfigKey, call: SideCall) {
        self.get(key, |memory| memory.side_calls.note_success(call));
    }

    /// Notes that a side call failed: `what` says which part of it, `quotes` whether the API server's answer may be repeated.
    pub(crate) fn side_call_failed(
        &self,
        key: &ConfigKey,
        call: SideCall,
        what: &str,
        error: &CallError,
        quotes: bool,
    ) {
        let cause = FailureCause::of(error, quotes);
        tracing::warn!(config = %key, what, cause = cause.text, "call failed; retrying");
        self.change(key, |memory| memory.side_calls.note_failure(call, what, cause, Instant::now(), rand::random()));
    }

    /// Reads or changes what is remembered of workloads in this part of the config's rollout.
    pub(crate) fn restarts<T>(&self, key: &ConfigKey, part: &Part, change: impl FnOnce(&mut RestartMemory) -> T) -> T {
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
