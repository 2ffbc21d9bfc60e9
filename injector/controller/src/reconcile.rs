//! One reconcile of one config: reads what is missing, decides, writes the status, publishes, prunes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::{Explanation, PartKind, RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient::Lenient;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_core::restart;
use nudge_core::rollout::{ALL, Evidence, Millis, Neighbours, Now};
use nudge_core::versions::{Decision, Facts, Observed, PartFacts, decide};
use tokio::sync::OwnedMutexGuard;

use super::controller::{Controller, locked, written_by_us};
use super::restart::{Restarting, restarts};

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

/// So many milliseconds; at least a moment, to avoid a busy loop.
fn wait(millis: Millis) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).max(Duration::from_millis(20))
}

/// Whether it may begin to move now.
fn may_begin(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let requested = config.spec.current.as_ref();
    status.rollout.stage.is_none()
        && status.current.is_some()
        && requested.is_some()
        && requested != status.current.as_ref()
}

/// Whether its pods are to return, or all of them are to get a version now: a brake, which needs nothing to be known but the config.
fn is_brake(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let (requested, rollout) = (config.spec.current.as_ref(), &status.rollout);
    let forward = matches!(rollout.stage, Some(RolloutStage::Moving | RolloutStage::Baking | RolloutStage::Restarting));
    let now = config.spec.now.as_ref().is_some_and(|now| Some(&now.version) == requested);
    let steps = rollout.stage == Some(RolloutStage::Moving) && rollout.threshold < ALL;
    (requested.is_some() && requested == status.previous.as_ref())
        || (forward && requested != status.target.as_ref())
        || (now && (may_begin(config) || steps))
}

/// Whether its move lets others pass, and may go on now.
fn yields(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.rollout.yields)
}

/// Whether it is being moved, or may begin to move now.
fn is_moved(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some()) || may_begin(config)
}

/// What is seen beside the config and its versions.
struct Seen {
    pods: Vec<Arc<PodState>>,
    nodes_away: BTreeSet<String>,
    neighbours: HashMap<String, Neighbours>,
    waiting_for: Option<String>,
    restarting: Restarting,
}

impl Controller {
    /// Reconciles one config. Returns when to look again.
    pub async fn reconcile(&self, key: &ConfigKey) -> Result<Again, CallError> {
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
        let braked = self.brake(key, &config);
        // Pods may have crashed, and spec may have changed, without being seen.
        if is_moved(&config)
            && braked.is_none()
            && let Some(what) = self.index.doubted(&key.namespace)
        {
            tracing::debug!(config = %key, what, "reconcile postponed: changes may have been missed");
            return Ok(Again::At(BLIND));
        }
        let (config, mut again) = match braked {
            Some((decision, evidence)) => (self.put(key, config, &decision, evidence, None).await?, Again::Soon),
            None => self.settle(key, config).await?,
        };
        let looked = self.looked(key).map(|(_, looked)| looked.version);
        let config = match self.publish(key, &config).await? {
            None => config,
            Some((next, events)) => {
                let written = self.write(key, &next).await;
                // What is not written is not known to others: it is looked at again.
                let written = written.inspect_err(|_| drop(locked(&self.looked).remove(key)))?;
                self.events.record(&written, &events).await;
                self.refresh_published(key, &config, &written).await;
                Arc::new(written)
            }
        };
        // A rollout may have waited for this.
        if config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some())
            && looked != self.looked(key).map(|(_, looked)| looked.version)
        {
            again = Again::Soon;
        }
        self.prune(key, &config).await?;
        Ok(again)
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
        evidence.blind();
        let seen = Seen {
            waiting_for: self.moving_neighbour(key, &pods),
            pods,
            nodes_away: BTreeSet::new(),
            neighbours: HashMap::new(),
            restarting: Restarting::later(),
        };
        let (decision, evidence) = self.decided(key, config, &seen, &self.facts(key), &evidence);
        let before = config.status.as_ref().map(|status| status.rollout.revision);
        (Some(decision.status.rollout.revision) != before).then_some((decision, (evidence, looked)))
    }

    /// Decides about the versions and writes the status. Returns the config as it is then.
    async fn settle(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
    ) -> Result<(Arc<VersionedConfig>, Again), CallError> {
        let restarting = self.restart(key, &config).await?;
        // The nodes of exactly these pods: a pod that falls later, with its node, would be held against the version.
        let (looked, pods) = (Instant::now(), self.index.subscribers(key));
        let mut seen = Seen {
            nodes_away: self.nodes_away(&config, &pods).await?,
            waiting_for: None,
            neighbours: self.neighbours(key, &config, &pods),
            pods,
            restarting,
        };
        let mut facts = self.facts(key);
        let known = self.evidence(key);
        let mut turns = 0;
        // Two configs that share pods must not both begin to move, or go on, in the same moment.
        let begins = may_begin(&config) || yields(&config);
        let (mut decision, evidence, one) = loop {
            let one = if begins { Some(self.begins_in(&key.namespace).await) } else { None };
            seen.waiting_for = self.moving_neighbour(key, &seen.pods);
            let made = self.decided(key, &config, &seen, &facts, &known);
            // The rest is left to the next reconcile: one config must not keep a worker for itself.
            if made.0.unread.is_empty() || turns == READS {
                break (made.0, made.1, one);
            }
            drop(one);
            turns += 1;
            for (kind, name) in made.0.unread.into_iter().take(READ_AT_ONCE) {
                if let Some(read) = self.read(&key.namespace, kind, &name).await? {
                    facts.insert(read.uid.clone(), read);
                }
            }
        };
        let more = match &decision.again {
            _ if !decision.unread.is_empty() => Again::Soon,
            Some(millis) => Again::At(wait(*millis)),
            None => Again::Never,
        };
        let more = Self::with_restart(more, &config, &seen.restarting, &mut decision);
        self.keep(key, facts, &decision.status);
        Ok((self.put(key, config, &decision, (evidence, looked), one).await?, more))
    }

    /// Decides by what was seen.
    fn decided(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        seen: &Seen,
        facts: &Facts,
        evidence: &Evidence,
    ) -> (Decision, Evidence) {
        let (parts, secrets_known, left_out) = self.index.seen_parts(key);
        let published = self.looked(key).map(|(_, looked)| looked.version);
        let now = Time(Timestamp::now());
        let observed = Observed {
            config,
            parts: &parts,
            facts,
            secrets_known,
            left_out: &left_out,
            pods: &seen.pods,
            nodes_away: &seen.nodes_away,
            neighbours: &seen.neighbours,
            waiting_for: seen.waiting_for.as_deref(),
            published: published.as_deref(),
            seals: &self.seals(key, config),
            replaces_keyed_at: &self.replaces_keyed_at(),
            restart: &seen.restarting.state,
            now: Now { time: &now, steady: self.steady() },
        };
        decide(&observed, evidence)
    }

    /// Writes the status that was decided, if it is another one, and keeps the evidence. `one` is held until it is written. Returns the config
    /// as it is then.
    async fn put(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
        decision: &Decision,
        evidence: (Evidence, Instant),
        one: Option<OwnedMutexGuard<()>>,
    ) -> Result<Arc<VersionedConfig>, CallError> {
        if config.status.as_ref() == Some(&decision.status) {
            self.keep_evidence(key, evidence);
            return Ok(config);
        }
        let mut next = (*config).clone();
        next.status = Some(decision.status.clone());
        // What is not written is decided anew, by the same evidence.
        let written = self.write(key, &next).await?;
        drop(one);
        self.keep_evidence(key, evidence);
        let before = config.status.clone().unwrap_or_default();
        self.metrics.changed(&before, written.status.as_ref().unwrap_or(&before));
        for event in &decision.events {
            let Explanation { reason, message } = &event.explanation;
            tracing::info!(config = %key, %reason, message, "status written");
        }
        self.events.record(&written, &decision.events).await;
        Ok(Arc::new(written))
    }

    /// Reports the workloads that take a version by a restart, and looks at them again while they are being restarted.
    fn with_restart(more: Again, config: &VersionedConfig, restarting: &Restarting, decision: &mut Decision) -> Again {
        if let Some(found) = &restarting.found {
            let now = Time(Timestamp::now());
            decision.events.extend(restart::write_condition(
                &mut decision.status,
                found,
                config.metadata.generation,
                &now,
            ));
        }
        let entered = !restarts(config.status.as_ref()) && restarts(Some(&decision.status));
        match (more, restarting.again()) {
            (Again::Soon, _) => Again::Soon,
            _ if entered => Again::Soon,
            (Again::At(wait), Some(look)) => Again::At(wait.min(look)),
            (Again::Never, Some(look)) => Again::At(look),
            (more, None) => more,
        }
    }

    /// Has the kubelet read volumes again where another version was published.
    async fn refresh_published(&self, key: &ConfigKey, before: &VersionedConfig, after: &VersionedConfig) {
        let published = |config: &VersionedConfig| config.status.as_ref().and_then(|status| status.published.clone());
        match published(after) {
            Some(version) if published(before).as_ref() != Some(&version) => self.refresh(key, after, &version).await,
            _ => {}
        }
    }

    fn facts(&self, key: &ConfigKey) -> Facts {
        locked(&self.facts).get(key).cloned().unwrap_or_default()
    }

    /// Keeps the facts of objects that are not part of a sealed version yet.
    fn keep(&self, key: &ConfigKey, mut facts: Facts, status: &VersionedConfigStatus) {
        let parts = self.index.parts(key);
        let sealed = |uid: &str| status.versions.iter().flat_map(|version| &version.parts).any(|part| part.uid == uid);
        facts.retain(|uid, _| parts.iter().any(|part| part.uid == *uid) && !sealed(uid));
        let mut all = locked(&self.facts);
        if facts.is_empty() {
            all.remove(key);
        } else {
            all.insert(key.clone(), facts);
        }
    }

    /// Writes the status, unless the object has changed since. The index has it at once.
    async fn write(&self, key: &ConfigKey, next: &VersionedConfig) -> Result<VersionedConfig, CallError> {
        let api: Api<Lenient<VersionedConfig>> = Api::namespaced(self.client.clone(), &key.namespace);
        let writing = || format!("writing the status of VersionedConfig {key}");
        let Lenient(written) =
            call(writing, api.replace_status(key.name.as_str(), &written_by_us(), &Lenient(next.clone()))).await?;
        self.index.put_written_config(written.clone());
        Ok(written)
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
mod tests {
    use hyper::http;
    use kube::Client;
    use kube::client::Body;
    use nudge_api::RolloutStage;
    use nudge_cluster::index::Index;
    use nudge_core::restart::{Memory, Part};
    use ring::hmac;
    use tower::service_fn;

    use super::*;
    use crate::metrics::RolloutMetrics;

    #[tokio::test]
    async fn nothing_is_remembered_of_a_config_that_is_gone() {
        let service = service_fn(|_: http::Request<Body>| async {
            let status =
                br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}"#;
            http::Response::builder().status(404).body(Body::from(status.to_vec()))
        });
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let (index, hmac_key) = (Arc::new(Index::default()), Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key")));
        index.set_enabled(["ns".to_owned()].into());
        let controller = Controller::new(client, index, hmac_key, "a", silence, RolloutMetrics::default());
        let (gone, left) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("elsewhere", "shop").unwrap());
        let part = Part { stage: Some(RolloutStage::Restarting), version: Some("2".to_owned()) };
        let mut memory = Memory::default();
        assert_eq!(memory.ready_before("ReplicaSet/web", 3), 3);
        for key in [&gone, &left] {
            controller.keep_restarts(key, part.clone(), memory.clone());
            assert_eq!(controller.restarts_so_far(key, &part), memory);
            let back = Part { stage: Some(RolloutStage::RollingBack), ..part.clone() };
            assert!(controller.restarts_so_far(key, &back).is_empty(), "another part");
            Box::pin(controller.reconcile(key)).await.unwrap();
            assert!(controller.restarts_so_far(key, &part).is_empty());
        }
    }
}
