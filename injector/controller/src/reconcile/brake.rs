//! Brakes: decisions that take pods back, or give all of them a version now, are made from memory alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_core::config::{Decision, is_brake};
use nudge_core::keys::ConfigKey;
use nudge_core::rollout::Evidence;

use super::inputs::ReconcileInputs;
use crate::controller::Controller;
use crate::memory::RestartCheck;

/// A brake's decision.
pub(super) struct Brake {
    pub(super) decision: Decision,
    /// The evidence after the decision.
    pub(super) evidence: Evidence,
    /// The time when the pods were read.
    pub(super) observed_at: Instant,
}

impl Controller {
    /// Decides about the changes of a brake, from memory alone, since every read can fail. Returns `None` if the
    /// decision assigns nothing to any pod.
    pub(super) fn brake(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<Brake> {
        if !is_brake(config, Timestamp::now()) {
            return None;
        }
        let (observed_at, pods) = (Instant::now(), self.index.subscribers(key));
        // Changes may have been missed and nodes are not read, so the evidence begins again.
        let mut evidence = self.evidence(key);
        Arc::make_mut(&mut evidence).reset_after_gap();
        let inputs = ReconcileInputs {
            waiting_for: None,
            subjects: self.subjects(key, config, &pods, &BTreeSet::new()),
            pods,
            neighbours: HashMap::new(),
            restart_check: RestartCheck::not_yet(),
            approvals: self.known_approvals(key, config),
            answers: None,
            facts: self.memories.part_facts(key),
            validation: self.validation(key, config),
            evidence,
            observed_at,
        };
        let (decision, evidence) = self.decision(key, config, &inputs);
        self.keep_subjects(key, inputs.subjects);
        let before = config.status.as_ref().map(|status| status.internal.revision);
        (Some(decision.status.internal.revision) != before).then_some(Brake { decision, evidence, observed_at })
    }
}
