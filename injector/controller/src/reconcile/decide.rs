//! The decision of a reconcile: `nudge-core` decides by the inputs, missing inputs are read, and the status is written.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_cluster::call::CallError;
use nudge_cluster::index::VisibleParts;
use nudge_core::config::{Decision, Observed, decide, is_moved, lets_others_pass, may_begin};
use nudge_core::keys::ConfigKey;
use nudge_core::requester::Requesters;
use nudge_core::restart;
use nudge_core::restart::is_restarting;
use nudge_core::rollout::{Evidence, Now};

use super::inputs::ReconcileInputs;
use super::next_reconcile::{NextReconcile, to_wait};
use crate::controller::Controller;
use crate::memory::{RestartCheck, SideCall};

/// The maximum number of reads in one reconcile. Further reads are left to the next reconcile.
const MAX_READS: usize = 3;
/// The maximum number of objects of one read.
const MAX_OBJECTS_PER_READ: usize = 32;

impl Controller {
    /// Decides about the versions and writes the status. Returns the config after that; `None` if another config of the
    /// namespace begins to move. The end of that move brings this config back.
    pub(super) async fn decide(
        self: &Arc<Self>,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
    ) -> Result<Option<(Arc<VersionedConfig>, NextReconcile)>, CallError> {
        // Two configs that share pods must not begin or continue to move at the same moment: one has the right until
        // its status is written.
        let may_start = may_begin(&config) || lets_others_pass(&config);
        // This check comes before the costly steps, since many configs of a namespace may wait, and each beginning
        // wakes all of them.
        if may_start && self.move_order.begin(key).is_none() {
            return Ok(None);
        }
        let mut inputs = self.observe(key, &config).await;
        let (mut reads, mut tried) = (0, Vec::new());
        let (mut decision, evidence, right) = loop {
            let right = if may_start { self.move_order.begin(key) } else { None };
            if may_start && right.is_none() {
                return Ok(None);
            }
            // A config at rest waits for no other config.
            inputs.waiting_for =
                if is_moved(&config) { self.config_to_go_first(key, &config, &inputs.pods) } else { None };
            let (decision, evidence) = self.decision(key, &config, &inputs);
            // One config must not keep a worker for itself.
            if decision.unread.is_empty() || reads == MAX_READS {
                break (decision, evidence, right);
            }
            drop(right);
            tried = decision.unread;
            tried.truncate(MAX_OBJECTS_PER_READ);
            let exists = self.read_objects(key, &tried, &mut inputs.facts).await;
            // An object that the API server lacks is not read again at once.
            reads = if exists { reads + 1 } else { MAX_READS };
        };
        if decision.unread.is_empty() {
            self.memories.side_call_succeeded(key, SideCall::Objects);
        }
        let ReconcileInputs { facts, subjects, validation, restart_check, waiting_for, observed_at, .. } = inputs;
        let next = self.next_read(key, &decision.unread, &tried).unwrap_or(NextReconcile::OnChange);
        let next = next.or_within(decision.recheck_after.map(to_wait));
        let next = next.or_within(self.begin_validation(key, &config, validation, &decision.unjudged, &facts));
        let next = self.add_call_conditions(next, key, &config, &restart_check, &mut decision);
        // The write of the decision may fail, so its inputs are kept until it succeeds.
        if let Some(stored) = &config.status {
            self.prune_verdicts(key, stored);
        }
        self.keep_facts(key, &config, facts);
        self.keep_subjects(key, subjects);
        let (config, rewrite) = self.write_decision(key, config, &decision, right).await?;
        self.keep_evidence(key, evidence, observed_at);
        let beginning = waiting_for.as_ref().and_then(|other| self.move_order.wait_for(key, other));
        let question = self.write_question(key, &config, decision.question).await;
        Ok(Some((config, next.or_within(rewrite).or_within(beginning).or_within(question))))
    }

    /// Decides by the inputs. Returns the decision, and the evidence after it.
    pub(super) fn decision(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        inputs: &ReconcileInputs,
    ) -> (Decision, Evidence) {
        let VisibleParts { parts, secrets, left_out } = self.index.visible_parts(key);
        let published = self.publish_attempt(key);
        let now = Time(Timestamp::now());
        let observed = Observed {
            config,
            parts: &parts,
            facts: &inputs.facts,
            secrets_known: secrets,
            left_out: &left_out,
            pods: &inputs.subjects,
            neighbours: &inputs.neighbours,
            waiting_for: inputs.waiting_for.as_ref().map(|other| other.name.as_str()),
            measured: inputs.answers.as_ref(),
            publish_attempt: published.as_ref(),
            judging: inputs.validation.judging(),
            seals: &self.seals(key, config),
            policies: &self.index.policies(&key.namespace),
            requesters: &Requesters::of(config, &self.keys.note),
            approvals: &inputs.approvals,
            restart: &inputs.restart_check.state,
            report_wait: self.report_wait(&key.namespace),
            hub_away: self.hub_outage.lock().cause(&key.namespace),
            now: Now { time: &now, steady: self.steady() },
        };
        decide(&observed, &inputs.evidence)
    }

    /// Writes the causes of restarts and side calls that fail into their conditions. Workloads are checked again while
    /// they are being restarted.
    fn add_call_conditions(
        &self,
        next: NextReconcile,
        key: &ConfigKey,
        config: &VersionedConfig,
        restart_check: &RestartCheck,
        decision: &mut Decision,
    ) -> NextReconcile {
        let (status, generation, now) = (&mut decision.status, config.metadata.generation, Time(Timestamp::now()));
        if let Some(report) = &restart_check.report {
            decision.events.extend(restart::write_restart_condition(status, report, generation, &now));
        }
        self.memories.change(key, |memory| memory.side_calls.write_condition(status, generation, Instant::now(), &now));
        let starts_restarts = !is_restarting(config.status.as_ref()) && is_restarting(Some(&decision.status));
        if starts_restarts { NextReconcile::Soon } else { next.or_within(restart_check.next_check()) }
    }
}
