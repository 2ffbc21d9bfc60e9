//! The rules of `spec.validation`, as far as admission applies them. Rules that can't be used are refused. A version
//! that consists of one object is judged at once: a courtesy, since sealing decides.

use std::sync::Arc;

use nudge_api::{PartKind, ValidationRule, VersionedConfigSpec};
use nudge_protocol::labels;
use nudge_validation::{Rules, SchemaTexts, dictionary_of, references, schema_of};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::lookups::{LookupError, Lookups, Right};
use super::needed_right::NeededRight;
use super::review::ReviewRequest;
use super::verdict::Denial;
use super::version_object::VersionObject;

/// Compiles rules and checks contents against them, one at a time: each check may take a processor for a second.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    turns: Arc<Semaphore>,
}

impl Default for Judge {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(1)) }
    }
}

/// Returns the rules of a spec, if a request sets or changes them.
pub(super) fn new_rules<'a>(
    old: Option<&VersionedConfigSpec>,
    new: &'a VersionedConfigSpec,
) -> Option<&'a [ValidationRule]> {
    let is_changed = old.is_none_or(|old| old.validation != new.validation);
    (is_changed && !new.validation.is_empty()).then_some(&new.validation[..])
}

/// Returns the rights that a change of rules needs if versions may have parts of these kinds: verdicts can show values
/// to the author of the rules.
pub(super) fn rule_rights<'a>(kinds: impl IntoIterator<Item = PartKind>) -> impl Iterator<Item = NeededRight<'a>> {
    kinds.into_iter().map(|kind| {
        NeededRight::new(Right::GetAll(kind), "change its spec.validation", "rules can show what values are")
    })
}

impl Judge {
    /// Checks whether the rules can be used. Returns a warning for each schema that does not exist yet.
    pub(super) async fn check_rules<L: Lookups>(
        &self,
        lookups: &L,
        request: &ReviewRequest,
        (namespace, name): (&str, &str),
        rules: &[ValidationRule],
    ) -> Result<Result<Vec<String>, Denial>, LookupError> {
        let deny =
            |cause: String| Denial::invalid(format!("VersionedConfig {name} can't have this spec.validation: {cause}"));
        let (mut texts, mut warnings) = (SchemaTexts::new(), Vec::new());
        for reference in references(rules) {
            let Some(map) = lookups.config_map(request, namespace, &reference.name).await? else {
                let map = &reference.name;
                warnings.push(format!(
                    "ConfigMap {map}, which holds a schema of spec.validation, does not exist; no version is sealed \
                     until it does"
                ));
                // The other rules are checked all the same.
                texts.insert(reference.clone(), "{}".to_owned());
                continue;
            };
            match schema_of(Some(map), reference) {
                Ok(text) => drop(texts.insert(reference.clone(), text)),
                Err(cause) => return Ok(Err(deny(cause))),
            }
        }
        let _turn = self.turns.acquire().await;
        let rules = rules.to_vec();
        let compiled = spawn_blocking(move || Rules::compile(&rules, &texts).map(drop)).await;
        Ok(match compiled {
            Ok(Ok(())) => Ok(warnings),
            Ok(Err(error)) => Err(deny(error.to_string())),
            Err(_) => Err(deny("Nudge could not check it; try again".to_owned())),
        })
    }

    /// Checks a version that consists of this one object. Checks that are impossible now are left to sealing.
    pub(super) async fn check_version<L: Lookups>(
        &self,
        lookups: &L,
        request: &ReviewRequest,
        namespace: &str,
        object: &VersionObject,
    ) -> Result<(), Denial> {
        let [config, version] = [labels::CONFIG, labels::VERSION].map(|label| object.label(label).unwrap_or_default());
        let Some(config) = lookups.index().config(namespace, config) else { return Ok(()) };
        let status = config.status.as_ref();
        // A sealed version is not checked again.
        let was_sealed = status.is_some_and(|status| {
            status.version(version).is_some()
                || status.internal.retired.iter().any(|retired| retired.version == version)
        });
        let rules = config.spec.validation.clone();
        if rules.is_empty() || was_sealed {
            return Ok(());
        }
        let mut texts = SchemaTexts::new();
        for reference in references(&rules) {
            let Ok(map) = lookups.config_map(request, namespace, &reference.name).await else { return Ok(()) };
            let Ok(text) = schema_of(map, reference) else { return Ok(()) };
            texts.insert(reference.clone(), text);
        }
        let Ok(_turn) = self.turns.try_acquire() else { return Ok(()) };
        let (kind, content) = (object.kind, object.content.clone());
        let check = spawn_blocking(move || {
            let rules = Rules::compile(&rules, &texts).ok()?;
            rules.check(&dictionary_of([(kind, &content)])).err()
        });
        match check.await {
            Ok(Some(report)) => Err(Denial::invalid(format!(
                "{} breaks a rule of spec.validation: {report}; correct it, or change the rules",
                object.part_title()
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfig;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{FakeLookups, request};
    use crate::verdict::AdmissionVerdict;
    use crate::webhooks::Webhook as _;
    use crate::webhooks::configs::ValidateConfigs;
    use crate::webhooks::versions::ValidateVersions;

    fn config(validation: &Value) -> Value {
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"validation": validation}
        })
    }

    fn lookups() -> FakeLookups {
        let may_get = vec![PartKind::ConfigMap, PartKind::Secret];
        FakeLookups { may_update: true, may_get, ..FakeLookups::default() }
    }

    async fn changed(lookups: FakeLookups, validation: Value) -> AdmissionVerdict {
        let change = request("VersionedConfig", "UPDATE", Some(&config(&json!([]))), Some(&config(&validation)));
        ValidateConfigs::new(Arc::new(lookups)).review(&change).await.unwrap()
    }

    fn message(verdict: AdmissionVerdict) -> String {
        match verdict {
            AdmissionVerdict::Deny(denial) => denial.message,
            AdmissionVerdict::Allow { warnings, .. } => format!("allowed {warnings:?}"),
        }
    }

    #[tokio::test]
    async fn rules_that_can_not_be_used_are_refused() {
        let good = json!([{"name": "a", "key": "a", "format": "json"}, {"name": "b", "rule": "data.a != ''"}]);
        assert_eq!(message(changed(lookups(), good).await), "allowed []");
        let typo = message(changed(lookups(), json!([{"name": "a", "rule": "dat.a != ''"}])).await);
        assert_eq!(
            typo,
            "VersionedConfig shop can't have this spec.validation: rule a can't be used: there is no variable dat; use data or parsed"
        );
        let away = json!([{"name": "a", "key": "a", "schema": {"inline": {"$ref": "https://example.com/a.json"}}}]);
        let away = message(changed(lookups(), away).await);
        assert!(away.contains("it refers to https://example.com/a.json, and only references within"), "{away}");
        // Rules that are there stay.
        let bad = json!([{"name": "a", "rule": "dat.a"}]);
        let (old, mut new) = (config(&bad), config(&bad));
        new["spec"]["historyLimit"] = json!(20);
        let change = request("VersionedConfig", "UPDATE", Some(&old), Some(&new));
        let verdict = ValidateConfigs::new(Arc::new(lookups())).review(&change).await.unwrap();
        assert!(!verdict.is_denied(), "{verdict:?}");
    }

    #[tokio::test]
    async fn a_schema_of_a_config_map_is_there_and_immutable_or_comes_later() {
        let rules = json!([
            {"name": "a", "key": "a", "schema": {"configMapKeyRef": {"name": "schema", "key": "k"}}},
            {"name": "b", "key": "b", "format": "int"}
        ]);
        let with = |map: Value| FakeLookups { config_map: serde_json::from_value(map).unwrap(), ..lookups() };
        let later = message(changed(lookups(), rules.clone()).await);
        assert!(
            later.starts_with("allowed [\"ConfigMap schema, which holds a schema of spec.validation, does not"),
            "{later}"
        );
        let there = json!({"metadata": {"name": "schema"}, "immutable": true, "data": {"k": "{\"type\": \"object\"}"}});
        assert_eq!(message(changed(with(there), rules.clone()).await), "allowed []");
        let changes = json!({"metadata": {"name": "schema"}, "data": {"k": "{}"}});
        assert!(
            message(changed(with(changes), rules.clone()).await)
                .contains("ConfigMap schema, which holds a schema, is not immutable")
        );
        let wrong = json!({"metadata": {"name": "schema"}, "immutable": true, "data": {"k": "{\"type\": 1}"}});
        assert!(
            message(changed(with(wrong), rules).await)
                .contains("key k of ConfigMap schema can't be used as a schema; kubectl")
        );
    }

    #[tokio::test]
    async fn rules_are_made_by_who_may_read_what_they_are_about() {
        use PartKind::{ConfigMap, Secret};

        let rules = json!([{"name": "pin", "rule": "data.pin.startsWith('1')"}]);
        let may = |kinds: &[PartKind], secrets| FakeLookups { may_get: kinds.to_vec(), secrets, ..lookups() };
        let refused = message(changed(may(&[ConfigMap], true), rules.clone()).await);
        assert_eq!(
            refused,
            "VersionedConfig shop: user \"eve\" may not change its spec.validation, because rules can show what values are; this needs \
             the right to get Secrets in namespace team"
        );
        assert!(message(changed(may(&[], false), rules.clone()).await).contains("the right to get ConfigMaps"));
        for allowed in [may(&[ConfigMap], false), may(&[ConfigMap, Secret], true)] {
            assert_eq!(message(changed(allowed, rules.clone()).await), "allowed []");
        }
    }

    #[tokio::test]
    async fn a_version_of_one_object_is_judged_at_once() {
        let stored = |status: Value| -> VersionedConfig {
            let mut config = config(&json!([{"name": "a", "key": "a.json", "format": "json"}]));
            config["status"] = status;
            serde_json::from_value(config).unwrap()
        };
        let created = async |config: VersionedConfig, value: &str, parts: Option<&str>| {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"a.json": value},
                "metadata": {"name": "shop-2", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "2", "nudge.dev/part": "1"},
                    "annotations": {"nudge.dev/parts": parts.unwrap_or("1")}},
            });
            let lookups = FakeLookups { config: Some(config), ..lookups() };
            let create = request("ConfigMap", "CREATE", None, Some(&object));
            message(ValidateVersions::new(Arc::new(lookups)).review(&create).await.unwrap())
        };
        assert_eq!(
            created(stored(json!({})), "{\"lives\": 3,}", None).await,
            "ConfigMap shop-2, part of version 2 of config shop, breaks a rule of spec.validation: key a.json, line 1, column 13: must be \
             JSON, which has no comma before a closing bracket; correct it, or change the rules"
        );
        assert_eq!(created(stored(json!({})), "{}", None).await, "allowed []");
        assert_eq!(created(stored(json!({})), "{", Some("2")).await, "allowed []", "the other part may have more");
        let retired = json!({"internal": {"retired": [{"version": "2", "digests": ["sha256:d"]}]}});
        assert_eq!(created(stored(retired), "{", None).await, "allowed []", "it was sealed before");
    }
}
