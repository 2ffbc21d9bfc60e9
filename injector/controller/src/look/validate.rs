//! Validation of versions by `spec.validation` before they are sealed: reads schemas and contents, and keeps the verdicts.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{InvalidVersion, PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::CallError;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Contents, Facts, PartFacts, Unjudged, Verdict};
use nudge_validation::{Rules, SchemaTexts, dictionary_of, references};

use crate::controller::Controller;
use crate::memory::ValidationMemory;

/// The time until it is looked at again whether rules can be used that could not be: nobody watches the ConfigMaps of schemas.
const UNUSABLE_RULES_RETRY: Duration = Duration::from_secs(10);
/// The time until another attempt after a call that failed.
const FAILED_CALL_RETRY: Duration = Duration::from_secs(2);

impl Controller {
    /// Returns the rules and verdicts of this config.
    pub(super) fn validation(&self, key: &ConfigKey, config: &VersionedConfig) -> ValidationMemory {
        let spec = (config.metadata.uid.clone(), config.metadata.generation);
        let last = self.memories.get(key, |memory| memory.validation.clone()).unwrap_or_default();
        let rules = last.rules.filter(|_| last.spec == spec);
        ValidationMemory { spec, has_none: config.spec.validation.is_empty(), rules, verdicts: last.verdicts }
    }

    /// Forgets verdicts about versions that are sealed or gone.
    pub(super) fn prune_verdicts(&self, key: &ConfigKey, status: &VersionedConfigStatus) {
        if self.memories.get(key, |memory| memory.validation.verdicts.is_empty()) != Some(false) {
            return;
        }
        let parts = self.index.parts(key);
        let is_open = |name: &str| status.version(name).is_none() && parts.iter().any(|part| part.version == name);
        self.memories.get(key, |memory| memory.validation.verdicts.retain(|name, _| is_open(name)));
    }

    /// Has the first of these versions validated, beside the reconciles: a rollout must not wait for it. The config comes back into the
    /// queue when that is done. Returns when to look again whether rules can be used that can't be now.
    pub(super) fn begin_validation(
        self: &Arc<Self>,
        key: &ConfigKey,
        config: &Arc<VersionedConfig>,
        mut validation: ValidationMemory,
        unjudged: &[Unjudged],
        facts: &Facts,
    ) -> Option<Duration> {
        let next = unjudged.first()?.clone();
        if let Some(Err((_, since))) = &validation.rules {
            let left = UNUSABLE_RULES_RETRY.saturating_sub(since.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
            validation.rules = None;
        }
        if self.validating.lock().insert(key.clone()) {
            // Its end keeps what came of it where there is a memory.
            self.memories.change(key, |_| ());
            let mut end = ValidationEnd { controller: Arc::clone(self), key: key.clone(), again: FAILED_CALL_RETRY };
            let (config, facts) = (Arc::clone(config), facts.clone());
            let validation = async move {
                let ValidationEnd { controller, key, again } = &mut end;
                let turn = controller.validation_turns.take(&key.namespace).await;
                let judged = controller.validate(key, &config, &mut validation, &next, &facts).await;
                drop(turn);
                // Nothing is kept of a config that is gone by now.
                controller.memories.get(key, |memory| memory.validation = validation);
                match judged {
                    Ok(true) => *again = Duration::ZERO,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(config = %key, error = &error as &dyn Error, "version not judged; trying again");
                    }
                }
            };
            tokio::spawn(validation);
        }
        None
    }

    /// Makes the rules ready, and validates a version by them. Returns whether something came of it.
    async fn validate(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        validation: &mut ValidationMemory,
        next: &Unjudged,
        facts: &Facts,
    ) -> Result<bool, CallError> {
        let rules = if let Some(Ok(rules)) = &validation.rules {
            Arc::clone(rules)
        } else {
            let made = self.rules(key, config).await?;
            match validation.rules.insert(made.map(Arc::new).map_err(|why| (why, Instant::now()))) {
                Ok(rules) => Arc::clone(rules),
                Err(_) => return Ok(true),
            }
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
            let read = self.read_part(&key.namespace, *kind, name).await?;
            let is_known = |read: &PartFacts| facts.get(&read.uid).is_some_and(|known| known.keyed == read.keyed);
            let Some((_, content)) = read.filter(|(read, _)| is_known(read)) else { return Ok(false) };
            parts.push((*kind, content));
        }
        let hash = rules.hash().to_owned();
        // A task that can't be run is tried again.
        let judged = tokio::task::spawn_blocking(move || message(&rules, &parts)).await;
        let Ok(message) = judged else { return Ok(false) };
        let (version, valid) = (&next.version, message.is_none());
        tracing::info!(config = %key, version, rules = hash, valid, "version judged by spec.validation");
        let verdict = Verdict { content: next.content.clone(), rules: hash, message };
        validation.verdicts.insert(version.clone(), verdict);
        Ok(true)
    }

    /// Returns the rules of a config, or why they can't be used.
    async fn rules(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<Result<Rules, String>, CallError> {
        let validation = config.spec.validation.clone();
        let mut texts = SchemaTexts::new();
        for reference in references(&validation) {
            let map: Option<ConfigMap> = self.read_object(&key.namespace, &reference.name).await?;
            match nudge_validation::schema_of(map, reference) {
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
}

/// The end of a validation, also of one that panics: the next may begin, and the config comes back into the queue.
struct ValidationEnd {
    controller: Arc<Controller>,
    key: ConfigKey,
    again: Duration,
}

impl Drop for ValidationEnd {
    fn drop(&mut self) {
        self.controller.validating.lock().remove(&self.key);
        self.controller.queue.add(self.key.clone(), self.again);
    }
}

/// Returns what is wrong with these parts together.
fn message(rules: &Rules, parts: &[(PartKind, Contents)]) -> Option<String> {
    let dictionary = dictionary_of(parts.iter().map(|(kind, content)| (*kind, content)));
    rules.check(&dictionary).err().map(|report| report.to_string())
}
