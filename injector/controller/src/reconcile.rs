//! One reconcile of one config: reads what is missing, decides, writes the status, publishes, prunes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::{ConditionType, Explanation, PartKind, RolloutAnalysisStatus, VersionedConfig, find_condition};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient::Lenient;
use nudge_core::governance::Approvals;
use nudge_core::keys::ConfigKey;
use nudge_core::requester::Requesters;
use nudge_core::restart;
use nudge_core::rollout::{Evidence, Millis, Neighbours, Now, Subjects};
use nudge_core::versions::{Decision, Facts, Observed, PartFacts, decide, importing, is_importing};

use super::audit;
use super::chores::Chore;
use super::controller::{Begins, Controller};
use super::counting::is_more_than_numbers;
use super::gate::Gate;
use super::locked::locked;
use super::refused::Refused;
use super::restart::restarts;
use super::restarting::Restarting;
use super::turns::{is_brake, is_moved, may_begin, yields};

/// How often contents are read before the rest is left to the next reconcile.
const READS: usize = 3;
/// When to look again at a config that is not moved because changes may have been missed.
const BLIND: Duration = Duration::from_secs(1);
/// Objects that are read at once.
const READ_AT_ONCE: usize = 32;

/// When to look at a config again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// When something is seen to change.
    Never,
    /// There is more to do.
    Soon,
    /// At the latest after this time.
    At(Duration),
}

impl Again {
    /// The same, after this time at the latest.
    fn by(self, time: Option<Duration>) -> Self {
        match (self, time) {
            (Self::At(wait), Some(time)) => Self::At(wait.min(time)),
            (Self::Never, Some(time)) => Self::At(time),
            (again, _) => again,
        }
    }
}

/// So many milliseconds; at least a moment, to avoid a busy loop.
fn wait(millis: Millis) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).max(Duration::from_millis(20))
}

/// What is seen beside the config and its versions.
struct Seen {
    pods: Subjects,
    neighbours: HashMap<String, Neighbours>,
    waiting_for: Option<ConfigKey>,
    restarting: Restarting,
    approvals: Approvals,
    measured: Option<RolloutAnalysisStatus>,
}

/// The config as it is after a write, and when to write what was left out.
type Put = (Arc<VersionedConfig>, Option<Duration>);

impl Controller {
    /// Reconciles one config. Returns when to look again.
    pub async fn reconcile(self: &Arc<Self>, key: &ConfigKey) -> Result<Again, CallError> {
        if !self.index.is_enabled(&key.namespace) {
            self.forget_config(key);
            return Ok(Again::Never);
        }
        // Half of what there is would look like all of it. The index says when it has the rest.
        if !self.index.is_complete(&key.namespace) {
            return Ok(Again::Never);
        }
        let Some(config) = self.index.config(key) else {
            self.forget_config(key);
            if !self.index.is_left_out(key) {
                return self.baseline(key).await;
            }
            return Ok(Again::Never);
        };
        if config.metadata.deletion_timestamp.is_some() {
            return Ok(Again::Never);
        }
        if is_importing(&config) {
            return self.leave_alone(key, &config).await;
        }
        let braked = self.brake(key, &config);
        // Pods may have crashed, and spec may have changed, without being seen.
        if is_moved(&config)
            && braked.is_none()
            && let Some(what) = self.index.doubted(&key.namespace)
        {
            tracing::debug!(config = %key, what, "reconcile postponed: changes may have been missed");
            return Ok(Again::At(BLIND));
        }
        // A hold may have been missed; the first version may need approval.
        let goes_on = is_moved(&config) || config.status.as_ref().is_none_or(|status| status.current_version.is_none());
        if goes_on && braked.is_none() && self.index.doubts_policies() {
            tracing::debug!(config = %key, "reconcile postponed: policies may have been missed");
            return Ok(Again::At(BLIND));
        }
        let (config, mut again) = match braked {
            Some((decision, evidence)) => (self.put(key, config, &decision, evidence, None).await?.0, Again::Soon),
            None => match self.settle(key, config).await? {
                Some(settled) => settled,
                None => return Ok(Again::Never),
            },
        };
        let tried = self.publish_attempt(key);
        let config = self.publish(key, config).await?;
        // A rollout may have waited for this.
        if config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some())
            && tried != self.publish_attempt(key)
        {
            again = Again::Soon;
        }
        let pruned = self.prune(key, &config).await;
        let chores = self.memories.known(key, |memory| memory.chores.again(Instant::now())).flatten();
        Ok(again.by(self.publish_again(key)).by(pruned).by(chores))
    }

    /// Says that the config is being imported, and does nothing else. What was observed before is not what will be.
    async fn leave_alone(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<Again, CallError> {
        self.forget_config(key);
        let before = config.status.clone().unwrap_or_default();
        let status = importing(before, config.metadata.generation, &Time(Timestamp::now()));
        if config.status.as_ref() != Some(&status) && Box::pin(self.write(key, config, &status)).await?.is_some() {
            tracing::info!("the config is being imported; left alone");
        }
        Ok(Again::Never)
    }

    /// What a brake changes, by what is in memory. It waits for no API call but the write: whatever is read before can fail. `None` where it
    /// assigns nothing to any pod.
    fn brake(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<(Decision, (Evidence, Instant))> {
        if !is_brake(config) {
            return None;
        }
        let (looked, pods) = (Instant::now(), self.index.subscribers(key));
        // Changes may have been missed, and nodes are not looked at: nobody looked.
        let mut evidence = self.evidence(key);
        Arc::make_mut(&mut evidence).blind();
        let seen = Seen {
            waiting_for: None,
            pods: self.subjects(key, config, &pods, &BTreeSet::new()),
            neighbours: HashMap::new(),
            restarting: Restarting::later(),
            approvals: self.known_approvals(key, config),
            measured: None,
        };
        let (decision, evidence) =
            self.decided(key, config, &seen, (&self.facts(key), &self.gate(key, config)), &evidence);
        self.keep_subjects(key, seen.pods);
        let before = config.status.as_ref().map(|status| status.internal.revision);
        (Some(decision.status.internal.revision) != before).then_some((decision, (evidence, looked)))
    }

    /// Decides about the versions and writes the status. Returns the config as it is then; `None` where another config of the namespace begins to
    /// move, whose end brings this one back.
    async fn settle(
        self: &Arc<Self>,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
    ) -> Result<Option<(Arc<VersionedConfig>, Again)>, CallError> {
        // Two configs that share pods must not both begin to move, or go on, in the same moment: one has the right until its status is written.
        let begins = may_begin(&config) || yields(&config);
        // Asked before all that costs: many may wait in one namespace, and each beginning brings all of them back.
        if begins && self.begins(key).is_none() {
            return Ok(None);
        }
        let restarting = self.restart(key, &config).await;
        let measured = self.measured(key, &config).await;
        // The nodes of exactly these pods: a pod that falls later, with its node, would be held against the version.
        let (looked, pods) = (Instant::now(), self.index.subscribers(key));
        let nodes_away = self.nodes_away(key, &config, &pods).await;
        let approvals = self.approvals(key, &config).await;
        let mut seen = Seen {
            waiting_for: None,
            neighbours: self.neighbours(key, &config, &pods),
            pods: self.subjects(key, &config, &pods, nodes_away.as_ref().unwrap_or(&BTreeSet::new())),
            restarting,
            approvals,
            measured,
        };
        let (mut facts, gate) = (self.facts(key), self.gate(key, &config));
        let mut known = self.evidence(key);
        if nodes_away.is_none() {
            Arc::make_mut(&mut known).blind_to_nodes();
        }
        let (mut turns, mut tried) = (0, Vec::new());
        let (mut decision, evidence, one) = loop {
            let one = if begins { self.begins(key) } else { None };
            if begins && one.is_none() {
                return Ok(None);
            }
            // What rests waits for nobody.
            seen.waiting_for = if is_moved(&config) { self.moving_neighbour(key, &pods) } else { None };
            let made = self.decided(key, &config, &seen, (&facts, &gate), &known);
            // The rest is left to the next reconcile: one config must not keep a worker for itself.
            if made.0.unread.is_empty() || turns == READS {
                break (made.0, made.1, one);
            }
            drop(one);
            tried = made.0.unread;
            tried.truncate(READ_AT_ONCE);
            let found = self.read_objects(key, &tried, &mut facts).await;
            // What the API server does not have is not asked for again at once.
            turns = if found { turns + 1 } else { READS };
        };
        if decision.unread.is_empty() {
            self.chore_succeeded(key, Chore::Objects);
        }
        let more = self.read_again(key, &decision.unread, &tried).unwrap_or(Again::Never);
        let more = more.by(decision.again.map(wait));
        let more = more.by(self.begin_judging(key, &config, gate, &decision.unjudged, &facts));
        let more = self.with_calls(more, key, &config, &seen.restarting, &mut decision);
        // What is decided may not be written, so what is needed to decide it anew is kept until it is.
        if let Some(stored) = &config.status {
            self.prune_gate(key, stored);
        }
        self.keep(key, &config, facts);
        self.keep_subjects(key, seen.pods);
        let (config, later) = self.put(key, config, &decision, (evidence, looked), one).await?;
        if let Some(other) = &seen.waiting_for {
            self.waits_for(key, other);
        }
        let asks = self.ask(key, &config, decision.question).await;
        Ok(Some((config, more.by(later).by(asks))))
    }

    /// Decides by what was seen.
    fn decided(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        seen: &Seen,
        (facts, gate): (&Facts, &Gate),
        evidence: &Evidence,
    ) -> (Decision, Evidence) {
        let (parts, secrets_known, left_out) = self.index.seen_parts(key);
        let published = self.publish_attempt(key);
        let now = Time(Timestamp::now());
        let observed = Observed {
            config,
            parts: &parts,
            facts,
            secrets_known,
            left_out: &left_out,
            pods: &seen.pods,
            neighbours: &seen.neighbours,
            waiting_for: seen.waiting_for.as_ref().map(|other| other.name.as_str()),
            measured: seen.measured.as_ref(),
            published: published.as_ref(),
            judging: gate.judging(),
            seals: &self.seals(key, config),
            policies: &self.index.policies(&key.namespace),
            requesters: &Requesters::of(config, &self.content_key),
            approvals: &seen.approvals,
            restart: &seen.restarting.state,
            line: self.line(&key.namespace),
            hub_away: locked(&self.outage).of(&key.namespace),
            now: Now { time: &now, steady: self.steady() },
        };
        decide(&observed, evidence)
    }

    /// Writes the status that was decided, if it is another one, and keeps the evidence. Where only numbers have changed it is written in turn.
    /// `one` is held until it is written.
    async fn put(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
        decision: &Decision,
        evidence: (Evidence, Instant),
        one: Option<Begins<'_>>,
    ) -> Result<Put, CallError> {
        if config.status.as_ref() == Some(&decision.status) {
            self.keep_evidence(key, evidence);
            return Ok((config, None));
        }
        let before = config.status.clone().unwrap_or_default();
        let less = self.reduced(key, &before, &decision.status);
        if less.as_ref() == Some(&before) {
            self.keep_evidence(key, evidence);
            return Ok((config, Some(Refused::AGAIN)));
        }
        // What is left out is decided at each look, with its Events.
        if (less.is_some() || decision.events.is_empty())
            && !is_more_than_numbers(&before, less.as_ref().unwrap_or(&decision.status))
            && let Err(wait) = locked(&self.counting).turn(key, Instant::now())
        {
            self.keep_evidence(key, evidence);
            return Ok((config, Some(wait)));
        }
        // What is not written is decided anew, by the same evidence.
        let Some(written) = Box::pin(self.write(key, &config, &decision.status)).await? else {
            self.keep_evidence(key, evidence);
            return Ok((config, Some(Refused::AGAIN)));
        };
        drop(one);
        locked(&self.counting).written(key, Instant::now());
        self.keep_evidence(key, evidence);
        let after = written.status.as_ref().unwrap_or(&before);
        self.metrics.changed(&before, after);
        audit::changed(key, &before, after);
        let is_less = find_condition(&after.conditions, ConditionType::StatusComplete).is_some();
        if !is_less || is_more_than_numbers(&before, after) {
            for event in &decision.events {
                let Explanation { reason, message } = &event.explanation;
                tracing::info!(config = %key, %reason, message, "status written");
            }
            self.events.record(&written, &decision.events);
        }
        Ok((Arc::new(written), is_less.then_some(Refused::AGAIN)))
    }

    /// Reports the workloads that take a version by a restart, and what fails. Workloads are looked at again while they are being restarted.
    fn with_calls(
        &self,
        more: Again,
        key: &ConfigKey,
        config: &VersionedConfig,
        restarting: &Restarting,
        decision: &mut Decision,
    ) -> Again {
        let (status, generation, now) = (&mut decision.status, config.metadata.generation, Time(Timestamp::now()));
        if let Some(found) = &restarting.found {
            decision.events.extend(restart::write_condition(status, found, generation, &now));
        }
        self.memories.change(key, |memory| memory.chores.write_condition(status, generation, (Instant::now(), &now)));
        let entered = !restarts(config.status.as_ref()) && restarts(Some(&decision.status));
        if entered { Again::Soon } else { more.by(restarting.again()) }
    }

    /// What is known of objects whose version is not sealed yet, and of those of the version that waits for approvals.
    pub(super) fn facts(&self, key: &ConfigKey) -> Facts {
        self.memories.known(key, |memory| memory.facts.clone()).unwrap_or_default()
    }

    /// Keeps the facts of objects that are not part of a sealed version yet, or of the one that waits for approvals: who made it is read there.
    fn keep(&self, key: &ConfigKey, config: &VersionedConfig, mut facts: Facts) {
        if let Some(status) = config.status.as_ref().filter(|_| !facts.is_empty()) {
            let wish = config.spec.version.as_ref().or(status.desired_version.as_ref());
            let awaited = wish.filter(|_| self.needs_approval(key, config));
            let awaited = awaited.filter(|version| status.current_version.as_ref() != Some(version));
            let parts = self.index.parts(key);
            let mut open: HashSet<&str> = parts.iter().map(|part| part.uid.as_str()).collect();
            let sealed = status.versions.iter().filter(|sealed| awaited != Some(&sealed.version));
            for sealed in sealed.flat_map(|version| &version.parts) {
                open.remove(sealed.uid.as_str());
            }
            facts.retain(|uid, _| open.contains(uid.as_str()));
        }
        self.memories.change(key, |memory| memory.facts = facts);
    }

    /// Reads objects whose version is not sealed. Returns whether one is there.
    async fn read_objects(&self, key: &ConfigKey, objects: &[(PartKind, String)], facts: &mut Facts) -> bool {
        if !self.chore_is_due(key, Chore::Objects) {
            return false;
        }
        let (mut found, mut failure) = (false, None);
        for (kind, name) in objects {
            match self.read(&key.namespace, *kind, name).await {
                Ok(Some(read)) => {
                    facts.insert(read.uid.clone(), read);
                    found = true;
                }
                Ok(None) => {}
                Err(error) => {
                    // Without an answer, each of the others would take as long.
                    let silent = error.code() == 0;
                    failure.get_or_insert((*kind, name, error));
                    if silent {
                        break;
                    }
                }
            }
        }
        match &failure {
            Some((kind, name, error)) => {
                let what = format!("{kind} {name} can't be read, and no version of it is sealed");
                self.chore_failed(key, Chore::Objects, &what, error, *kind == PartKind::ConfigMap);
            }
            None => self.chore_succeeded(key, Chore::Objects),
        }
        found && failure.is_none()
    }

    async fn read(&self, namespace: &str, kind: PartKind, name: &str) -> Result<Option<PartFacts>, CallError> {
        let reading = || format!("reading {kind} {namespace}/{name}");
        Ok(match kind {
            PartKind::ConfigMap => {
                let api: Api<Lenient<ConfigMap>> = Api::namespaced(self.client.clone(), namespace);
                let object = call(reading, api.get_opt(name)).await?;
                object.map(|Lenient(object)| PartFacts::of_config_map(object, &self.content_key))
            }
            PartKind::Secret => {
                let api: Api<Lenient<Secret>> = Api::namespaced(self.client.clone(), namespace);
                let object = call(reading, api.get_opt(name)).await?;
                object.map(|Lenient(object)| PartFacts::of_secret(object, &self.content_key))
            }
        })
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
