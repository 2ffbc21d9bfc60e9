//! The decision of a look: `nudge-core` decides by the inputs, what it lacks is read, and the status is written.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_cluster::call::CallError;
use nudge_core::config::{Decision, Observed, decide};
use nudge_core::keys::ConfigKey;
use nudge_core::requester::Requesters;
use nudge_core::restart;
use nudge_core::rollout::{Evidence, Now};

use super::again::{Again, wait};
use super::inputs::LookInputs;
use crate::controller::Controller;
use crate::memory::{RestartLook, SideCall};
use crate::move_state::{is_moved, lets_others_pass, may_begin};
use crate::restart::restarts;

/// The maximum of reads before the rest is left to the next look.
const READS: usize = 3;
/// The maximum of objects of one read.
const READ_AT_ONCE: usize = 32;

impl Controller {
    /// Decides about the versions and writes the status. Returns the config as it is then; `None` where another config of the namespace begins to
    /// move, whose end brings this one back.
    pub(super) async fn decide(
        self: &Arc<Self>,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
    ) -> Result<Option<(Arc<VersionedConfig>, Again)>, CallError> {
        // Two configs that share pods must not both begin to move, or go on, in the same moment: one has the right until its status is written.
        let begins = may_begin(&config) || lets_others_pass(&config);
        // Asked before all that costs: many may wait in one namespace, and each beginning brings all of them back.
        if begins && self.move_order.begin(key).is_none() {
            return Ok(None);
        }
        let mut inputs = self.observe(key, &config).await;
        let (mut reads, mut tried) = (0, Vec::new());
        let (mut decision, evidence, right) = loop {
            let right = if begins { self.move_order.begin(key) } else { None };
            if begins && right.is_none() {
                return Ok(None);
            }
            // What rests waits for nobody.
            inputs.waiting_for = if is_moved(&config) { self.moving_neighbour(key, &inputs.pods) } else { None };
            let (decision, evidence) = self.decision(key, &config, &inputs);
            // The rest is left to the next look: one config must not keep a worker for itself.
            if decision.unread.is_empty() || reads == READS {
                break (decision, evidence, right);
            }
            drop(right);
            tried = decision.unread;
            tried.truncate(READ_AT_ONCE);
            let is_there = self.read_objects(key, &tried, &mut inputs.facts).await;
            // What the API server does not have is not asked for again at once.
            reads = if is_there { reads + 1 } else { READS };
        };
        if decision.unread.is_empty() {
            self.memories.side_call_succeeded(key, SideCall::Objects);
        }
        let LookInputs { facts, subjects, validation, restart_look, waiting_for, looked_at, .. } = inputs;
        let again = self.read_again(key, &decision.unread, &tried).unwrap_or(Again::Never);
        let again = again.by(decision.again.map(wait));
        let again = again.by(self.begin_validation(key, &config, validation, &decision.unjudged, &facts));
        let again = self.with_call_conditions(again, key, &config, &restart_look, &mut decision);
        // What is decided may not be written, so what is needed to decide it anew is kept until it is.
        if let Some(stored) = &config.status {
            self.prune_verdicts(key, stored);
        }
        self.keep_facts(key, &config, facts);
        self.keep_subjects(key, subjects);
        let (config, rewrite) = self.write_decision(key, config, &decision, right).await?;
        self.keep_evidence(key, evidence, looked_at);
        if let Some(other) = &waiting_for {
            self.move_order.wait_for(key, other);
        }
        let question = self.ask(key, &config, decision.question).await;
        Ok(Some((config, again.by(rewrite).by(question))))
    }

    /// Decides by the inputs. Returns also the evidence after that.
    pub(super) fn decision(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        inputs: &LookInputs,
    ) -> (Decision, Evidence) {
        let (parts, secrets_known, left_out) = self.index.seen_parts(key);
        let published = self.publish_attempt(key);
        let now = Time(Timestamp::now());
        let observed = Observed {
            config,
            parts: &parts,
            facts: &inputs.facts,
            secrets_known,
            left_out: &left_out,
            pods: &inputs.subjects,
            neighbours: &inputs.neighbours,
            waiting_for: inputs.waiting_for.as_ref().map(|other| other.name.as_str()),
            measured: inputs.answers.as_ref(),
            published: published.as_ref(),
            judging: inputs.validation.judging(),
            seals: &self.seals(key, config),
            policies: &self.index.policies(&key.namespace),
            requesters: &Requesters::of(config, &self.keys.note),
            approvals: &inputs.approvals,
            restart: &inputs.restart_look.state,
            line: self.report_wait(&key.namespace),
            hub_away: self.hub_outage.lock().of(&key.namespace),
            now: Now { time: &now, steady: self.steady() },
        };
        decide(&observed, &inputs.evidence)
    }

    /// Puts the causes of restarts and side calls that fail into their conditions. Workloads are looked at again while they are being restarted.
    fn with_call_conditions(
        &self,
        again: Again,
        key: &ConfigKey,
        config: &VersionedConfig,
        restart_look: &RestartLook,
        decision: &mut Decision,
    ) -> Again {
        let (status, generation, now) = (&mut decision.status, config.metadata.generation, Time(Timestamp::now()));
        if let Some(report) = &restart_look.report {
            decision.events.extend(restart::write_condition(status, report, generation, &now));
        }
        self.memories
            .change(key, |memory| memory.side_calls.write_condition(status, generation, (Instant::now(), &now)));
        let entered = !restarts(config.status.as_ref()) && restarts(Some(&decision.status));
        if entered { Again::Soon } else { again.by(restart_look.next_look()) }
    }
}
