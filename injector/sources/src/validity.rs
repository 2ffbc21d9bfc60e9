//! Whether content follows the rules of its config: what breaks them becomes no version.

use std::sync::Arc;

use nudge_api::{Explanation, Reason, ValidationRule, VersionedConfig};
use nudge_cluster::turns::Turn;
use nudge_validation::{Rules, SchemaTexts, dictionary_of, references};
use tokio::task::spawn_blocking;

use crate::content::Newest;

/// The rules of the config, and the verdict by them about the newest content.
#[derive(Default)]
pub(crate) struct Validity {
    compiled_from: Vec<ValidationRule>,
    rules: Option<Arc<Rules>>,
    verdict: Option<(String, Option<Explanation>)>,
}

impl Validity {
    /// Judges the content that is this version, where there is `room` for its copies. Rules with a schema in a ConfigMap, which this process may not
    /// read, and rules that can't be used are left to those who seal.
    pub(crate) async fn judge(
        &mut self,
        config: &VersionedConfig,
        (version, newest): (&str, &Arc<Newest>),
        room: impl Future<Output = Turn>,
    ) {
        if config.spec.validation != self.compiled_from {
            self.compiled_from.clone_from(&config.spec.validation);
            (self.rules, self.verdict) = (compiled(&self.compiled_from).await, None);
        }
        let Some(rules) = &self.rules else { return };
        if self.verdict.as_ref().is_some_and(|(judged, _)| judged == version) {
            return;
        }
        let room = room.await;
        let (rules, newest) = (Arc::clone(rules), Arc::clone(newest));
        // A task that can't be run leaves the verdict to those who seal.
        let found = spawn_blocking(move || {
            let _room = room;
            broken(&rules, &newest)
        })
        .await
        .unwrap_or_default();
        self.verdict = Some((version.to_owned(), found.map(|why| Reason::Invalid.explained(why))));
    }

    /// What is wrong with the content that is this version.
    pub(crate) fn refusal(&self, version: &str) -> Option<&Explanation> {
        self.verdict.as_ref().filter(|(judged, _)| judged == version)?.1.as_ref()
    }
}

async fn compiled(rules: &[ValidationRule]) -> Option<Arc<Rules>> {
    if rules.is_empty() || references(rules).into_iter().next().is_some() {
        return None;
    }
    let rules = rules.to_vec();
    let compiled = spawn_blocking(move || Rules::compile(&rules, &SchemaTexts::new())).await;
    compiled.ok()?.ok().map(Arc::new)
}

fn broken(rules: &Rules, newest: &Newest) -> Option<String> {
    let dictionary = dictionary_of(newest.parts.iter().map(|part| (part.kind, &part.content)));
    let report = rules.check(&dictionary).err()?;
    Some(format!("the content breaks a rule of spec.validation: {report}; correct it, or change the rules"))
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigSpec;
    use nudge_authoring::{Content, divide};
    use serde_json::{Value, json};

    use super::*;
    use crate::limits::Budget;

    fn config(rules: Value) -> VersionedConfig {
        VersionedConfig::new(
            "shop",
            VersionedConfigSpec {
                validation: serde_json::from_value(rules).unwrap(),
                ..VersionedConfigSpec::default()
            },
        )
    }

    fn newest(value: &str) -> Arc<Newest> {
        let mut content = Content::default();
        content.add(true, "a.json".to_owned(), value.into()).unwrap();
        Arc::new(Newest { parts: divide(content).unwrap(), ..Newest::default() })
    }

    async fn judge(validity: &mut Validity, config: &VersionedConfig, version: &str, newest: &Arc<Newest>) {
        let budget = Budget::default();
        validity.judge(config, (version, newest), budget.copies("ns", newest.bytes())).await;
    }

    #[tokio::test]
    async fn content_is_judged_once_by_each_set_of_rules() {
        let strict = config(json!([{"name": "a", "key": "a.json", "format": "json"}]));
        let mut validity = Validity::default();
        let wrong = newest("{hunter2");
        judge(&mut validity, &strict, "src-1", &wrong).await;
        let refusal = validity.refusal("src-1").unwrap();
        assert_eq!(refusal.reason, Reason::Invalid);
        assert!(refusal.message.contains("a.json") && !refusal.message.contains("hunter2"), "{}", refusal.message);
        assert!(validity.refusal("src-2").is_none());
        judge(&mut validity, &strict, "src-2", &newest("{}")).await;
        assert!(validity.refusal("src-2").is_none());
        let schema = json!({"configMapKeyRef": {"name": "s", "key": "k"}});
        for rules in [json!([]), json!([{"name": "a", "key": "a.json", "schema": schema}])] {
            judge(&mut validity, &strict, "src-1", &wrong).await;
            assert!(validity.refusal("src-1").is_some());
            judge(&mut validity, &config(rules), "src-1", &wrong).await;
            assert!(validity.refusal("src-1").is_none());
        }
    }
}
