//! Judges versions by `spec.validation` before they are sealed: reads schemas and contents, and keeps what came of it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use nudge_api::{PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient::Lenient;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{
    Contents, Decision, Facts, Judging, RulesState, Unjudged, Verdict, Verdicts, contents_of, part_digest,
};
use nudge_validation::{Dictionary, Entry, Rules, SchemaTexts, references};

use super::controller::Controller;
use super::locked::locked;

/// When to look again whether rules can be used that could not be: nobody watches the ConfigMaps of schemas.
pub(super) const UNUSABLE: Duration = Duration::from_secs(10);

/// The rules of a config, and the verdicts by them about versions that are not sealed.
#[derive(Clone, Default)]
pub(super) struct Gate {
    /// The uid and the generation of the config.
    of: (Option<String>, Option<i64>),
    none: bool,
    rules: Option<Result<Arc<Rules>, String>>,
    verdicts: Verdicts,
}

impl Gate {
    /// For the function that decides.
    pub(super) fn judging(&self) -> Judging<'_> {
        let rules = match &self.rules {
            _ if self.none => RulesState::None,
            None => RulesState::NotReady(None),
            Some(Err(why)) => RulesState::NotReady(Some(why)),
            Some(Ok(rules)) => RulesState::Ready(rules.hash()),
        };
        Judging { rules, verdicts: &self.verdicts }
    }

    /// Whether something can be done about versions that wait for their verdict.
    pub(super) fn has_work(&self, decision: &Decision) -> bool {
        !decision.unjudged.is_empty() && !self.is_unusable()
    }

    /// Whether there are rules that can't be used.
    pub(super) fn is_unusable(&self) -> bool {
        matches!(self.rules, Some(Err(_)))
    }
}

impl Controller {
    /// What is known about the rules of this config.
    pub(super) fn gate(&self, key: &ConfigKey, config: &VersionedConfig) -> Gate {
        let of = (config.metadata.uid.clone(), config.metadata.generation);
        let known = locked(&self.gates).get(key).cloned().unwrap_or_default();
        let rules = known.rules.filter(|_| known.of == of);
        Gate { of, none: config.spec.validation.is_empty(), rules, verdicts: known.verdicts }
    }

    /// Keeps rules that can be used, and verdicts about versions that are there and not sealed.
    pub(super) fn keep_gate(&self, key: &ConfigKey, mut gate: Gate, status: &VersionedConfigStatus) {
        gate.rules.take_if(|rules| rules.is_err());
        if !gate.verdicts.is_empty() {
            let parts = self.index.parts(key);
            let is_open = |name: &str| status.version(name).is_none() && parts.iter().any(|part| part.version == name);
            gate.verdicts.retain(|name, _| is_open(name));
        }
        if gate.none || (gate.rules.is_none() && gate.verdicts.is_empty()) {
            locked(&self.gates).remove(key);
        } else {
            locked(&self.gates).insert(key.clone(), gate);
        }
    }

    /// Makes the rules ready or, once they are, judges the first of these versions.
    pub(super) async fn judge(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        gate: &mut Gate,
        unjudged: &[Unjudged],
        facts: &Facts,
    ) -> Result<(), CallError> {
        let rules = match &gate.rules {
            None => {
                gate.rules = Some(self.rules(key, config).await?.map(Arc::new));
                return Ok(());
            }
            Some(Err(_)) => return Ok(()),
            Some(Ok(rules)) => Arc::clone(rules),
        };
        let Some(next) = unjudged.first() else { return Ok(()) };
        let mut parts = Vec::new();
        for (kind, name) in &next.objects {
            // What has changed since is read anew, and decided anew.
            let Some(content) = self.content(&key.namespace, *kind, name, facts).await? else { return Ok(()) };
            parts.push((*kind, content));
        }
        let _turn = self.judgements.acquire().await;
        let (hash, judged) = (rules.hash().to_owned(), tokio::task::spawn_blocking(move || message(&rules, &parts)));
        // A task that can't be run is tried again.
        let Ok(message) = judged.await else { return Ok(()) };
        let version = &next.version;
        tracing::info!(version, rules = hash, valid = message.is_none(), "version judged by spec.validation");
        let verdict = Verdict { content: next.content.clone(), rules: hash, message };
        gate.verdicts.insert(version.clone(), verdict);
        Ok(())
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

/// What is wrong with these parts together.
fn message(rules: &Rules, parts: &[(PartKind, Contents)]) -> Option<String> {
    let mut dictionary = Dictionary::new();
    for (kind, content) in parts {
        let secret = *kind == PartKind::Secret;
        dictionary.extend(content.iter().map(|(key, value)| (key.as_str(), Entry { value, secret })));
    }
    rules.check(&dictionary).err().map(|report| report.to_string())
}
