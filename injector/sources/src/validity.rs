//! The verdict of the config's rules on the newest content. Content that breaks a rule does not become a version.

use std::sync::Arc;

use nudge_api::{Explanation, Reason, ValidationRule, VersionedConfig};
use nudge_cluster::turns::Turn;
use nudge_validation::{Rules, SchemaTexts, dictionary_of, references};
use tokio::task::spawn_blocking;

use crate::draft::VersionDraft;

struct ContentVerdict {
    version: String,
    refusal: Option<Explanation>,
}

/// The rules of the config, and their verdict on the newest content.
#[derive(Default)]
pub(crate) struct Validity {
    compiled_from: Vec<ValidationRule>,
    rules: Option<Arc<Rules>>,
    verdict: Option<ContentVerdict>,
}

impl Validity {
    /// Judges the draft of this version as soon as there is `room` for its copies. Some rules are left to the
    /// controller, which seals: rules that can't be used here, and rules with a schema in a ConfigMap, which this
    /// process may not read.
    pub(crate) async fn judge(
        &mut self,
        config: &VersionedConfig,
        version: &str,
        draft: &Arc<VersionDraft>,
        room: impl Future<Output = Turn>,
    ) {
        if config.spec.validation != self.compiled_from {
            self.compiled_from.clone_from(&config.spec.validation);
            (self.rules, self.verdict) = (compile(&self.compiled_from).await, None);
        }
        let Some(rules) = &self.rules else { return };
        if self.verdict.as_ref().is_some_and(|verdict| verdict.version == version) {
            return;
        }
        let room = room.await;
        let (rules, draft) = (Arc::clone(rules), Arc::clone(draft));
        // If the task can't be run, the verdict is left to the controller.
        let refusal = spawn_blocking(move || {
            let _room = room;
            check(&rules, &draft)
        });
        self.verdict = Some(ContentVerdict { version: version.to_owned(), refusal: refusal.await.unwrap_or_default() });
    }

    /// Returns the fault of the draft of this version, if it was found invalid.
    pub(crate) fn refusal(&self, version: &str) -> Option<&Explanation> {
        self.verdict.as_ref().filter(|verdict| verdict.version == version)?.refusal.as_ref()
    }
}

async fn compile(rules: &[ValidationRule]) -> Option<Arc<Rules>> {
    if rules.is_empty() || references(rules).into_iter().next().is_some() {
        return None;
    }
    let rules = rules.to_vec();
    let compiled = spawn_blocking(move || Rules::compile(&rules, &SchemaTexts::new())).await;
    compiled.ok()?.ok().map(Arc::new)
}

fn check(rules: &Rules, draft: &VersionDraft) -> Option<Explanation> {
    let dictionary = dictionary_of(draft.parts.iter().map(|part| (part.kind, &part.content)));
    let report = rules.check(&dictionary).err()?;
    let message = format!("the content breaks a rule of spec.validation: {report}; correct it, or change the rules");
    Some(Reason::Invalid.explained(message))
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigSpec;
    use nudge_authoring::{Content, divide};
    use serde_json::{Value, json};

    use super::*;
    use crate::budget::Budget;

    fn config(rules: Value) -> VersionedConfig {
        VersionedConfig::new(
            "shop",
            VersionedConfigSpec {
                validation: serde_json::from_value(rules).unwrap(),
                ..VersionedConfigSpec::default()
            },
        )
    }

    fn draft(value: &str) -> Arc<VersionDraft> {
        let mut content = Content::default();
        content.add(true, "a.json".to_owned(), value.into()).unwrap();
        Arc::new(VersionDraft { parts: divide(content).unwrap(), ..VersionDraft::default() })
    }

    async fn judge(validity: &mut Validity, config: &VersionedConfig, version: &str, draft: &Arc<VersionDraft>) {
        let budget = Budget::default();
        validity.judge(config, version, draft, budget.reserve_copies("ns", draft.bytes())).await;
    }

    #[tokio::test]
    async fn content_is_judged_once_by_each_set_of_rules() {
        let strict = config(json!([{"name": "a", "key": "a.json", "format": "json"}]));
        let mut validity = Validity::default();
        let wrong = draft("{hunter2");
        judge(&mut validity, &strict, "src-1", &wrong).await;
        let refusal = validity.refusal("src-1").unwrap();
        assert_eq!(refusal.reason, Reason::Invalid);
        assert!(refusal.message.contains("a.json") && !refusal.message.contains("hunter2"), "{}", refusal.message);
        assert!(validity.refusal("src-2").is_none());
        judge(&mut validity, &strict, "src-2", &draft("{}")).await;
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
