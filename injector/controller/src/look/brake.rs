//! Brakes: what takes pods back, or gives all of them a version now, is decided by what is in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use nudge_api::VersionedConfig;
use nudge_core::config::Decision;
use nudge_core::keys::ConfigKey;
use nudge_core::rollout::Evidence;

use super::inputs::LookInputs;
use crate::controller::Controller;
use crate::memory::RestartLook;
use crate::urgency::is_brake;

/// The decision of a brake, the evidence after it, and when the pods were looked at.
pub(super) type Brake = (Decision, Evidence, Instant);

impl Controller {
    /// Decides what a brake changes. It waits for no API call but the write: whatever is read before can fail. Returns `None` where it assigns
    /// nothing to any pod.
    pub(super) fn brake(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<Brake> {
        if !is_brake(config) {
            return None;
        }
        let (looked_at, pods) = (Instant::now(), self.index.subscribers(key));
        // Changes may have been missed and nodes are not read, so the evidence begins anew.
        let mut evidence = self.evidence(key);
        Arc::make_mut(&mut evidence).reset_after_gap();
        let inputs = LookInputs {
            waiting_for: None,
            subjects: self.subjects(key, config, &pods, &BTreeSet::new()),
            pods,
            neighbours: HashMap::new(),
            restart_look: RestartLook::not_yet(),
            approvals: self.known_approvals(key, config),
            answers: None,
            facts: self.memories.facts(key),
            validation: self.validation(key, config),
            evidence,
            looked_at,
        };
        let (decision, evidence) = self.decision(key, config, &inputs);
        self.keep_subjects(key, inputs.subjects);
        let before = config.status.as_ref().map(|status| status.internal.revision);
        (Some(decision.status.internal.revision) != before).then_some((decision, evidence, looked_at))
    }
}
