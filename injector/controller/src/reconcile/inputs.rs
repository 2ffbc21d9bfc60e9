//! The inputs of a decision in addition to the config and its versions: pods, nodes, approvals, restarts and answers of
//! analyses.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use nudge_api::{RolloutAnalysisStatus, VersionedConfig};
use nudge_core::governance::Approvals;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_core::rollout::{Evidence, Neighbours, Subjects};
use nudge_core::versions::FactsByUid;

use crate::controller::Controller;
use crate::memory::{RestartCheck, ValidationMemory};

/// The inputs of one decision.
pub(super) struct ReconcileInputs {
    /// The moment before the pods were read; everything later that was not seen was missed.
    pub(super) observed_at: Instant,
    pub(super) pods: Vec<Arc<PodState>>,
    /// The pods as the rollout sees them.
    pub(super) subjects: Subjects,
    pub(super) neighbours: HashMap<String, Neighbours>,
    /// Another config that shares pods with this one and is moved first.
    pub(super) waiting_for: Option<ConfigKey>,
    pub(super) restart_check: RestartCheck,
    pub(super) approvals: Approvals,
    /// The answers about the version on trial.
    pub(super) answers: Option<RolloutAnalysisStatus>,
    pub(super) facts: FactsByUid,
    pub(super) validation: ValidationMemory,
    /// The evidence before the decision.
    pub(super) evidence: Arc<Evidence>,
}

impl Controller {
    /// Observes the inputs of the decision about the config.
    pub(super) async fn observe(self: &Arc<Self>, key: &ConfigKey, config: &VersionedConfig) -> ReconcileInputs {
        let restart_check = self.restart(key, config).await;
        let answers = self.answers(key, config).await;
        // The pods are read before their nodes: a pod that fails later, with its node, would count against the version.
        let (observed_at, pods) = (Instant::now(), self.index.subscribers(key));
        let nodes_away = self.nodes_away(key, config, &pods).await;
        let approvals = self.approvals(key, config).await;
        let mut evidence = self.evidence(key);
        if nodes_away.is_none() {
            Arc::make_mut(&mut evidence).blind_to_nodes();
        }
        ReconcileInputs {
            waiting_for: None,
            neighbours: self.neighbours(key, config, &pods),
            subjects: self.subjects(key, config, &pods, &nodes_away.unwrap_or_default()),
            pods,
            restart_check,
            approvals,
            answers,
            facts: self.memories.part_facts(key),
            validation: self.validation(key, config),
            evidence,
            observed_at,
        }
    }

    /// Returns the evidence so far, with a gap if changes may have been missed since the last reconcile.
    pub(super) fn evidence(&self, key: &ConfigKey) -> Arc<Evidence> {
        let last = self.memories.get(key, |memory| memory.evidence.clone()).flatten();
        let Some((mut evidence, observed_at)) = last else { return Arc::default() };
        if self.complete_since(&key.namespace).is_some_and(|since| since > observed_at) {
            Arc::make_mut(&mut evidence).reset_after_gap();
        }
        evidence
    }

    pub(super) fn keep_evidence(&self, key: &ConfigKey, evidence: Evidence, observed_at: Instant) {
        self.memories.change(key, |memory| memory.evidence = Some((Arc::new(evidence), observed_at)));
    }

    /// Returns these pods as the rollout of the config sees them. Reuses the subjects that did not change since the
    /// last reconcile.
    pub(super) fn subjects(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        pods: &[Arc<PodState>],
        nodes_away: &BTreeSet<String>,
    ) -> Subjects {
        let mut subjects = self.memories.get(key, |memory| memory.subjects.take()).flatten().unwrap_or_default();
        subjects.update(pods, key.name.as_str(), Identity::of(config), nodes_away);
        subjects
    }

    pub(super) fn keep_subjects(&self, key: &ConfigKey, subjects: Subjects) {
        self.memories.change(key, |memory| memory.subjects = Some(subjects));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::{RolloutSpec, VersionedConfigStatus};
    use nudge_cluster::index::Index;
    use nudge_core::requester::Requesters;
    use nudge_core::rollout::{Now, Observation, Restarts, Rollout, SteadyTime, next};

    use super::*;
    use crate::fake_api_server::blind;

    #[tokio::test]
    async fn what_was_missed_after_the_pods_were_read_was_missed() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let controller = blind(index);
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let began = Instant::now();
        controller.begin_to_lead();
        let (restart, time) = (Restarts::Done, Time(Timestamp::now()));
        let seen = Observation {
            now: Now { time: &time, steady: SteadyTime(7) },
            spec: &RolloutSpec::default(),
            generation: 1,
            spec_version: Some("1"),
            digest: "sha256:0",
            requested: "1",
            follows_text: false,
            text_managers: &[],
            override_reason: None,
            requesters: &Requesters::default(),
            pods: &[],
            neighbours: &HashMap::new(),
            background: None,
            waiting_for: None,
            approvals: &[],
            closed_gate: None,
            measured: None,
            has_objects: false,
            publish_attempt: None,
            current_since: None,
            restart: &restart,
            report_wait: 0,
            hub_away: None,
        };
        let status =
            VersionedConfigStatus { current_version: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        let mut evidence = Evidence::default();
        next(Rollout::from_status(&status, &time), &mut evidence, &seen);
        // Only the memory shows that the pods were observed.
        let is_observed = |at| {
            controller.keep_evidence(&key, evidence.clone(), at);
            format!("{:?}", controller.evidence(&key)).contains("observed_at: Some(SteadyTime(7))")
        };
        assert!(is_observed(Instant::now()));
        assert!(!is_observed(began), "this replica began to see after that");
    }
}
