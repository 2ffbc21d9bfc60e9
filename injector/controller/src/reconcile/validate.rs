//! The validation of versions by `spec.validation` before they are sealed: reads of schemas and contents, and the
//! verdicts.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{InvalidVersion, PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::CallError;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Contents, FactsByUid, PartFacts, RuleVerdict, Unjudged};
use nudge_validation::{Rules, SchemaTexts, dictionary_of, references};

use crate::controller::Controller;
use crate::memory::ValidationMemory;

/// The time until rules that could not be used are tried again: no watch shows the ConfigMaps of schemas.
const UNUSABLE_RULES_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The time until another attempt after a call that failed.
const FAILED_CALL_RETRY_DELAY: Duration = Duration::from_secs(2);

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

    /// Begins to validate the first of these versions. The validation runs in parallel to the reconciles, since a
    /// rollout must not wait for it; its end brings the config back into the queue. Returns when to retry rules that
    /// can't be used now.
    pub(super) fn begin_validation(
        self: &Arc<Self>,
        key: &ConfigKey,
        config: &Arc<VersionedConfig>,
        mut validation: ValidationMemory,
        unjudged: &[Unjudged],
        facts: &FactsByUid,
    ) -> Option<Duration> {
        let next = unjudged.first()?.clone();
        if let Some(Err((_, since))) = &validation.rules {
            let wait = UNUSABLE_RULES_RETRY_DELAY.saturating_sub(since.elapsed());
            if !wait.is_zero() {
                return Some(wait);
            }
            validation.rules = None;
        }
        if self.validating.lock().insert(key.clone()) {
            // The end keeps the verdicts only if there is a memory.
            self.memories.change(key, |_| ());
            let mut validation_end =
                ValidationEnd { controller: Arc::clone(self), key: key.clone(), retry_in: FAILED_CALL_RETRY_DELAY };
            let (config, facts) = (Arc::clone(config), facts.clone());
            let validation = async move {
                let ValidationEnd { controller, key, retry_in } = &mut validation_end;
                let turn = controller.validation_turns.take(&key.namespace).await;
                let outcome = controller.validate(key, &config, &mut validation, &next, &facts).await;
                drop(turn);
                // Nothing is kept of a config that was deleted meanwhile.
                controller.memories.get(key, |memory| memory.validation = validation);
                match outcome {
                    Ok(true) => *retry_in = Duration::ZERO,
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

    /// Compiles the rules, and validates a version by them. Returns whether there is anything new.
    async fn validate(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        validation: &mut ValidationMemory,
        next: &Unjudged,
        facts: &FactsByUid,
    ) -> Result<bool, CallError> {
        let rules = if let Some(Ok(rules)) = &validation.rules {
            Arc::clone(rules)
        } else {
            let compiled = self.compile_rules(key, config).await?;
            match validation.rules.insert(compiled.map(Arc::new).map_err(|cause| (cause, Instant::now()))) {
                Ok(rules) => Arc::clone(rules),
                Err(_) => return Ok(true),
            }
        };
        // The record in the status may be by these rules.
        let is_recorded = |known: &InvalidVersion| {
            (&known.version, &known.content, known.rules.as_str()) == (&next.version, &next.content, rules.hash())
        };
        if config.status.as_ref().is_some_and(|status| status.invalid.iter().any(is_recorded)) {
            return Ok(true);
        }
        let mut parts = Vec::new();
        for (kind, name) in &next.objects {
            // Changes since then are read and decided again.
            let read = self.read_part(&key.namespace, *kind, name).await?;
            let is_same = |read: &PartFacts| facts.get(&read.uid).is_some_and(|known| known.keyed == read.keyed);
            let Some((_, content)) = read.filter(|(read, _)| is_same(read)) else { return Ok(false) };
            parts.push((*kind, content));
        }
        let hash = rules.hash().to_owned();
        // A task that can't be run is tried again.
        let checked = tokio::task::spawn_blocking(move || fault_message(&rules, &parts)).await;
        let Ok(message) = checked else { return Ok(false) };
        let (version, valid) = (&next.version, message.is_none());
        tracing::info!(config = %key, version, rules = hash, valid, "version judged by spec.validation");
        let verdict = RuleVerdict { content: next.content.clone(), rules: hash, message };
        validation.verdicts.insert(version.clone(), verdict);
        Ok(true)
    }

    /// Compiles the rules of a config. Returns a message if they can't be used.
    async fn compile_rules(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
    ) -> Result<Result<Rules, String>, CallError> {
        let validation = config.spec.validation.clone();
        let mut texts = SchemaTexts::new();
        for reference in references(&validation) {
            let map: Option<ConfigMap> = self.read_object(&key.namespace, &reference.name).await?;
            match nudge_validation::schema_of(map, reference) {
                Ok(text) => drop(texts.insert(reference.clone(), text)),
                Err(cause) => return Ok(Err(cause)),
            }
        }
        let compiled = tokio::task::spawn_blocking(move || Rules::compile(&validation, &texts)).await;
        Ok(match compiled {
            Ok(compiled) => compiled.map_err(|error| error.to_string()),
            Err(_) => Err("the rules could not be made ready".to_owned()),
        })
    }
}

/// The end of a validation, even by a panic: the next one may begin, and the config comes back into the queue.
struct ValidationEnd {
    controller: Arc<Controller>,
    key: ConfigKey,
    retry_in: Duration,
}

impl Drop for ValidationEnd {
    fn drop(&mut self) {
        self.controller.validating.lock().remove(&self.key);
        self.controller.queue.add(self.key.clone(), self.retry_in);
    }
}

/// Returns the fault of these parts together.
fn fault_message(rules: &Rules, parts: &[(PartKind, Contents)]) -> Option<String> {
    let dictionary = dictionary_of(parts.iter().map(|(kind, content)| (*kind, content)));
    rules.check(&dictionary).err().map(|report| report.to_string())
}
