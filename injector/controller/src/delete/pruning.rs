//! Deletions of versions beyond the history limit whose objects no pod and no template of a workload names.

use std::time::{Duration, Instant};

use nudge_api::{Reason, VersionedConfig};
use nudge_cluster::object_referrers::object_referrers;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::ObjectReferrers;
use nudge_core::versions::{is_beyond_limit, is_nearly_full, to_prune, undeletable_versions};

use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::{HistoryInUse, SideCall};

/// The time between two lists of the objects that pods and templates of a namespace name.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The time for which versions count as in use, while the config has the same spec and as many versions.
const IN_USE_TIME: Duration = Duration::from_mins(5);

impl Controller {
    /// Deletes the versions beyond the history limit. Returns when to try again if this was too soon.
    pub(crate) async fn prune(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<Duration> {
        if !self.may_delete_in(&key.namespace) {
            return None;
        }
        let parts = self.index.parts(key);
        let seals = self.seals(key, config);
        let last = seals.last_of_source(config);
        let (is_full, is_beyond) =
            (config.status.as_ref().is_some_and(is_nearly_full), is_beyond_limit(config, &parts, last));
        if !is_full || !is_beyond {
            self.memories.side_call_succeeded(key, SideCall::History);
        }
        if !is_beyond {
            self.memories.side_call_succeeded(key, SideCall::Versions);
            return None;
        }
        let pods = self.index.users(key)?;
        let has_surplus = !to_prune(config, &parts, last, &pods, &ObjectReferrers::new()).is_empty();
        if !has_surplus {
            self.memories.side_call_succeeded(key, SideCall::Versions);
        }
        let count = config.status.as_ref().map_or(0, |status| status.versions.len());
        let generation = config.metadata.generation;
        if self.memories.get(key, |memory| memory.history_in_use).flatten().is_some_and(|history| {
            history.generation == generation && history.count == count && history.listed_at.elapsed() < IN_USE_TIME
        }) {
            return None;
        }
        let names_referrers = is_full && self.memories.side_call_is_due(key, SideCall::History);
        if !has_surplus && !names_referrers {
            return None;
        }
        if !self.memories.side_call_is_due(key, SideCall::Versions) {
            return None;
        }
        {
            let mut pruned_at = self.pruned_at.lock();
            pruned_at.retain(|_, time| time.elapsed() < LIST_INTERVAL);
            if let Some(time) = pruned_at.get(&key.namespace) {
                return Some(LIST_INTERVAL.saturating_sub(time.elapsed()));
            }
            pruned_at.insert(key.namespace.clone(), Instant::now());
        }
        let named = match object_referrers(&self.client, &key.namespace, |_| true).await {
            Ok(named) => named,
            Err(error) => {
                let message = "what pods and workloads use can't be listed, and no version is deleted";
                self.memories.side_call_failed(key, SideCall::Versions, message, FailureCause::of(&error));
                return None;
            }
        };
        let surplus = to_prune(config, &parts, last, &pods, &named);
        self.memories.change(key, |memory| {
            memory.history_in_use =
                surplus.is_empty().then(|| HistoryInUse { generation, count, listed_at: Instant::now() });
        });
        match undeletable_versions(config, &parts, &pods, &named).filter(|_| surplus.is_empty()) {
            Some(users) => {
                let message = "the history is full, and versions beyond spec.historyLimit can't be deleted";
                let cause = FailureCause { refused: true, code: None, text: users };
                self.memories.side_call_failed(key, SideCall::History, message, cause);
            }
            None => self.memories.side_call_succeeded(key, SideCall::History),
        }
        let mut failure = None;
        'versions: for (version, objects) in surplus {
            for part in &objects {
                if let Err(error) = self.delete_part(&key.namespace, part).await {
                    let is_silent = error.code().is_none();
                    failure.get_or_insert((format!("{} {} can't be deleted", part.kind, part.name), part.kind, error));
                    // If there was no answer, each of the other deletions would take as long.
                    if is_silent {
                        break 'versions;
                    }
                    continue 'versions;
                }
            }
            let message = format!("version {version} was deleted, because no more like it are kept");
            tracing::info!(version, "version pruned");
            self.events.record(config, &[EventRecord::new(Reason::Pruned, message)]);
        }
        match failure {
            Some((what, kind, error)) => {
                self.memories.side_call_failed(key, SideCall::Versions, &what, FailureCause::of_object(kind, &error));
            }
            None => self.memories.side_call_succeeded(key, SideCall::Versions),
        }
        None
    }
}
