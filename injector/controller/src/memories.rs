//! What the leader remembers of each config between two looks. Forgetting a config is removing its memory; a new leader begins without any.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nudge_core::keys::ConfigKey;
use nudge_core::restart::{Memory, Part};
use nudge_core::rollout::{Evidence, Subjects};
use nudge_core::versions::Facts;

use super::asked::Asked;
use super::chores::Chores;
use super::gate::Gate;
use super::locked::locked;
use super::publish_memory::PublishMemory;
use super::refused::Refused;
use super::restarting::Restarting;

/// The memory of one config.
#[derive(Default)]
pub(super) struct ConfigMemory {
    /// The last refusal of its whole status.
    pub(super) refused: Option<Refused>,
    /// What is known of objects whose version is not sealed yet.
    pub(super) facts: Facts,
    /// By what its versions are judged.
    pub(super) gate: Gate,
    /// What was seen of its pods, and when last.
    pub(super) evidence: Option<(Arc<Evidence>, Instant)>,
    /// Its pods, as they were seen last.
    pub(super) subjects: Option<Subjects>,
    /// What was last tried of its published objects.
    pub(super) publish: PublishMemory,
    /// The workloads that are restarted.
    pub(super) restarts: Option<RestartMemory>,
    /// What fails beside the decision about it.
    pub(super) chores: Chores,
    /// What was asked about its version on trial.
    pub(super) asked: Option<Asked>,
    /// For how many looks the API server has not had the objects that the index shows.
    pub(super) outdated_looks: u32,
}

/// What is remembered of workloads in one part of a rollout.
pub(super) struct RestartMemory {
    part: Part,
    /// What was tried, so that it is not tried every second.
    memory: Memory,
    /// What was seen last, and when.
    look: Option<(tokio::time::Instant, Restarting)>,
}

impl RestartMemory {
    fn of(part: Part) -> Self {
        Self { part, memory: Memory::default(), look: None }
    }
}

impl ConfigMemory {
    fn restarts_in(&mut self, part: &Part) -> &mut RestartMemory {
        if self.restarts.as_ref().is_none_or(|known| known.part != *part) {
            self.restarts = None;
        }
        self.restarts.get_or_insert_with(|| RestartMemory::of(part.clone()))
    }
}

/// The memories of all configs.
#[derive(Default)]
pub(super) struct Memories(Mutex<HashMap<ConfigKey, ConfigMemory>>);

impl Memories {
    /// Changes the memory of a config, which begins with that.
    pub(super) fn change<T>(&self, key: &ConfigKey, change: impl FnOnce(&mut ConfigMemory) -> T) -> T {
        change(locked(&self.0).entry(key.clone()).or_default())
    }

    /// Reads or changes the memory of a config, if there is one.
    pub(super) fn known<T>(&self, key: &ConfigKey, change: impl FnOnce(&mut ConfigMemory) -> T) -> Option<T> {
        locked(&self.0).get_mut(key).map(change)
    }

    pub(super) fn forget(&self, key: &ConfigKey) {
        locked(&self.0).remove(key);
    }

    pub(super) fn forget_all(&self) {
        locked(&self.0).clear();
    }

    /// What is remembered in this part of the rollout.
    pub(super) fn restarts_so_far(&self, key: &ConfigKey, part: &Part) -> Memory {
        let so_far = |known: &RestartMemory| (known.part == *part).then(|| known.memory.clone());
        self.known(key, |memory| memory.restarts.as_ref().and_then(so_far)).flatten().unwrap_or_default()
    }

    pub(super) fn keep_restarts(&self, key: &ConfigKey, part: &Part, so_far: Memory) {
        if so_far.is_empty() {
            self.forget_restarts(key);
        } else {
            self.change(key, |memory| memory.restarts_in(part).memory = so_far);
        }
    }

    pub(super) fn forget_restarts(&self, key: &ConfigKey) {
        self.known(key, |memory| memory.restarts = None);
    }

    /// The last look in this part of the rollout, and when it ended.
    pub(super) fn restarting(&self, key: &ConfigKey, part: &Part) -> Option<(tokio::time::Instant, Restarting)> {
        let look = |known: &RestartMemory| known.look.clone().filter(|_| known.part == *part);
        self.known(key, |memory| memory.restarts.as_ref().and_then(look)).flatten()
    }

    /// With the end of the look: what is listed for the next one shows what it did.
    pub(super) fn keep_restarting(&self, key: &ConfigKey, part: &Part, restarting: Restarting) {
        let look = Some((tokio::time::Instant::now(), restarting));
        self.change(key, |memory| memory.restarts_in(part).look = look);
    }
}
