//! Judges versions by `spec.validation` before they are sealed: reads schemas and contents, and keeps what came of it.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use nudge_api::{InvalidVersion, PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient::Lenient;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Contents, Facts, Unjudged, Verdict, contents_of, part_digest};
use nudge_validation::{Rules, SchemaTexts, dictionary_of, references};

use super::controller::Controller;
use super::gate::Gate;
use super::locked::locked;

/// When to look again whether rules can be used that could not be: nobody watches the ConfigMaps of schemas.
const UNUSABLE: Duration = Duration::from_secs(10);
/// When to try again after a call that failed.
const FAILED: Duration = Duration::from_secs(2);

impl Controller {
    /// What is known about the rules of this config.
    pub(super) fn gate(&self, key: &ConfigKey, config: &VersionedConfig) -> Gate {
        let of = (config.metadata.uid.clone(), config.metadata.generation);
        let known = self.memories.known(key, |memory| memory.gate.clone()).unwrap_or_default();
        let rules = known.rules.filter(|_| known.of == of);
        Gate { of, none: config.spec.validation.is_empty(), rules, verdicts: known.verdicts }
    }

    /// Forgets verdicts about versions that are sealed or gone.
    pub(super) fn prune_gate(&self, key: &ConfigKey, status: &VersionedConfigStatus) {
        if self.memories.known(key, |memory| memory.gate.verdicts.is_empty()) != Some(false) {
            return;
        }
        let parts = self.index.parts(key);
        let is_open = |name: &str| status.version(name).is_none() && parts.iter().any(|part| part.version == name);
        self.memories.known(key, |memory| memory.gate.verdicts.retain(|name, _| is_open(name)));
    }

    /// Has the first of these versions judged, beside the reconciles: a rollout must not wait for it. The config comes back into the
    /// queue when that is done. Returns when to look again whether rules can be used that can't be now.
    pub(super) fn begin_judging(
        self: &Arc<Self>,
        key: &ConfigKey,
        config: &Arc<VersionedConfig>,
        mut gate: Gate,
        unjudged: &[Unjudged],
        facts: &Facts,
    ) -> Option<Duration> {
        let next = unjudged.first()?.clone();
        if let Some(Err((_, since))) = &gate.rules {
            let left = UNUSABLE.saturating_sub(since.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
            gate.rules = None;
        }
        if locked(&self.judging).insert(key.clone()) {
            // Its end keeps what came of it where there is a memory.
            self.memories.change(key, |_| ());
            let mut end = End { controller: Arc::clone(self), key: key.clone(), again: FAILED };
            let (config, facts) = (Arc::clone(config), facts.clone());
            let judged = async move {
                let End { controller, key, again } = &mut end;
                let turn = controller.judgements.take(&key.namespace).await;
                let judged = controller.judge(key, &config, &mut gate, &next, &facts).await;
                drop(turn);
                // Nothing is kept of a config that is gone by now.
                controller.memories.known(key, |memory| memory.gate = gate);
                match judged {
                    Ok(true) => *again = Duration::ZERO,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(config = %key, error = &error as &dyn Error, "version not judged; trying again");
                    }
                }
            };
            tokio::spawn(judged);
        }
        None
    }

    /// Makes the rules ready, and judges a version by them. Returns whether something came of it.
    async fn judge(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        gate: &mut Gate,
        next: &Unjudged,
        facts: &Facts,
    ) -> Result<bool, CallError> {
        let rules = match &gate.rules {
            Some(Ok(rules)) => Arc::clone(rules),
            _ => match self.rules(key, config).await? {
                Ok(rules) => {
                    let rules = Arc::new(rules);
                    gate.rules = Some(Ok(Arc::clone(&rules)));
                    rules
                }
                Err(why) => {
                    gate.rules = Some(Err((why, Instant::now())));
                    return Ok(true);
                }
            },
        };
        // The record in the status may be by these rules.
        let is_known = |known: &InvalidVersion| {
            (&known.version, &known.content, known.rules.as_str()) == (&next.version, &next.content, rules.hash())
        };
        if config.status.as_ref().is_some_and(|status| status.invalid.iter().any(is_known)) {
            return Ok(true);
        }
        let mut parts = Vec::new();
        for (kind, name) in &next.objects {
            // What has changed since is read anew, and decided anew.
            let Some(content) = self.content(&key.namespace, *kind, name, facts).await? else { return Ok(false) };
            parts.push((*kind, content));
        }
        let hash = rules.hash().to_owned();
        // A task that can't be run is tried again.
        let judged = tokio::task::spawn_blocking(move || message(&rules, &parts)).await;
        let Ok(message) = judged else { return Ok(false) };
        let (version, valid) = (&next.version, message.is_none());
        tracing::info!(config = %key, version, rules = hash, valid, "version judged by spec.validation");
        let verdict = Verdict { content: next.content.clone(), rules: hash, message };
        gate.verdicts.insert(version.clone(), verdict);
        Ok(true)
    }

    /// The rules of a config, or why they can't be used.
    async fn rules(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<Result<Rules, String>, CallError> {
        let validation = config.spec.validation.clone();
        let mut texts = SchemaTexts::new();
        for reference in references(&validation) {
            let name = &reference.name;
            let reading = || format!("reading ConfigMap {}/{name}", key.namespace);
            let api: Api<Lenient<ConfigMap>> = Api::namespaced(self.client.clone(), &key.namespace);
            let found = call(reading, api.get_opt(name)).await?;
            match nudge_validation::schema_of(found.map(|Lenient(map)| map), reference) {
                Ok(text) => drop(texts.insert(reference.clone(), text)),
                Err(why) => return Ok(Err(why)),
            }
        }
        let compiled = tokio::task::spawn_blocking(move || Rules::compile(&validation, &texts)).await;
        Ok(match compiled {
            Ok(compiled) => compiled.map_err(|error| error.to_string()),
            Err(_) => Err("the rules could not be made ready".to_owned()),
        })
    }

    /// The content of this object, if it is what its facts are about.
    async fn content(
        &self,
        namespace: &str,
        kind: PartKind,
        name: &str,
        facts: &Facts,
    ) -> Result<Option<Contents>, CallError> {
        let reading = || format!("reading {kind} {namespace}/{name}");
        let found = match kind {
            PartKind::ConfigMap => {
                let api: Api<Lenient<ConfigMap>> = Api::namespaced(self.client.clone(), namespace);
                let object = call(reading, api.get_opt(name)).await?;
                object.map(|Lenient(map)| (map.metadata, contents_of(map.data, map.binary_data)))
            }
            PartKind::Secret => {
                let api: Api<Lenient<Secret>> = Api::namespaced(self.client.clone(), namespace);
                let object = call(reading, api.get_opt(name)).await?;
                object.map(|Lenient(secret)| (secret.metadata, contents_of(None, secret.data)))
            }
        };
        let Some((meta, content)) = found else { return Ok(None) };
        let known = meta.uid.and_then(|uid| facts.get(&uid));
        let is_known = known.is_some_and(|facts| facts.keyed == part_digest(&content, Some(&self.content_key)));
        Ok(is_known.then_some(content))
    }
}

/// The end of a judgement, also of one that panics: the next may begin, and the config comes back into the queue.
struct End {
    controller: Arc<Controller>,
    key: ConfigKey,
    again: Duration,
}

impl Drop for End {
    fn drop(&mut self) {
        locked(&self.controller.judging).remove(&self.key);
        self.controller.queue.add(self.key.clone(), self.again);
    }
}

/// What is wrong with these parts together.
fn message(rules: &Rules, parts: &[(PartKind, Contents)]) -> Option<String> {
    let dictionary = dictionary_of(parts.iter().map(|(kind, content)| (*kind, content)));
    rules.check(&dictionary).err().map(|report| report.to_string())
}
