//! Changes of a config after which a version waits for less than before: they need the right to override it. A label marks the configs that have
//! guards, so that the API server asks about their deletion whatever happens, and about no other.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use k8s_openapi::jiff::Timestamp;
use kube::core::dynamic::DynamicObject;
use nudge_api::{RolloutSpec, VersionedConfig, VersionedConfigSpec};
use nudge_core::governance::{guards, overrides, weakened};
use nudge_protocol::labels::GUARDED;
use serde_json::{Value, json};

use crate::verdict::Denial;

/// What needs the right to override the config, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Weakening {
    what: String,
    because: String,
}

impl Weakening {
    /// What the user may not do.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Why the user may not do that.
    pub(crate) fn because(&self) -> &str {
        &self.because
    }

    /// The denial for a user who may not override the config.
    pub(crate) fn denial(&self, user: &str, namespace: &str, name: &str) -> Denial {
        let Self { what, because } = self;
        Denial::forbidden(format!(
            "VersionedConfig {name}: user {user:?} may not {what}, because {because}; this needs the right to override VersionedConfig \
             {name} in namespace {namespace}"
        ))
    }
}

/// What a request takes away from the guards of the config, if it does.
pub(crate) fn weakening(
    old: Option<&VersionedConfigSpec>,
    new: &VersionedConfigSpec,
    now: Timestamp,
) -> Option<Weakening> {
    let less = match old {
        Some(old) => weakened(&old.rollout, &new.rollout, now),
        None => weakened(&RolloutSpec::default(), &new.rollout, now),
    };
    if !less.is_empty() {
        let what = if old.is_some() { "change its spec" } else { "create it" };
        return Some(Weakening { what: what.to_owned(), because: format!("that {}", less.join(" and ")) });
    }
    let because = "that version then waits for no step, approval, window or hold".to_owned();
    overrides(old, new).map(|what| Weakening { what, because })
}

/// How deleting the config weakens its guards.
pub(crate) fn deletes_guards(config: &VersionedConfig) -> Option<Weakening> {
    let guards = guards(&config.spec.rollout);
    let because = format!("that removes its guards ({})", guards.join(", "));
    (!guards.is_empty()).then(|| Weakening { what: "delete it".to_owned(), because })
}

/// The operations after which the config has the label exactly if it has guards. The schema is checked later, so they may be anything.
pub(crate) fn mark_guarded(config: &DynamicObject) -> Vec<PatchOperation> {
    let rollout = &config.data["spec"]["rollout"];
    let is_empty = |field: &Value| field.is_null() || field.as_array().is_some_and(Vec::is_empty);
    let guarded = ["approval", "windows", "analysis"].iter().any(|field| !is_empty(&rollout[*field]));
    let guarded = guarded || rollout["hold"]["protected"] == true;
    let labels = config.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(GUARDED)).map(String::as_str);
    let path = || PointerBuf::from_tokens(["metadata", "labels", GUARDED]);
    match (guarded, label) {
        (true, Some("true")) | (false, None) => Vec::new(),
        (false, Some(_)) => vec![PatchOperation::Remove(RemoveOperation { path: path() })],
        (true, _) => {
            let all = PointerBuf::from_tokens(["metadata", "labels"]);
            let add = |path, value| PatchOperation::Add(AddOperation { path, value });
            labels.is_none().then(|| add(all, json!({}))).into_iter().chain([add(path(), json!("true"))]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;

    use super::*;

    fn marked(config: &Value) -> Value {
        let object: DynamicObject = serde_json::from_value(config.clone()).unwrap();
        let mut stored = config.clone();
        json_patch::patch(&mut stored, &Patch(mark_guarded(&object))).unwrap();
        stored["metadata"]["labels"].take()
    }

    #[test]
    fn the_label_says_whether_there_are_guards_whoever_wrote_it() {
        let config = |labels: &Value, rollout: &Value| {
            let mut meta = json!({"name": "shop"});
            if !labels.is_null() {
                meta["labels"] = labels.clone();
            }
            json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": meta, "spec": {"rollout": rollout}})
        };
        let labels = [json!(null), json!({}), json!({GUARDED: "true"}), json!({GUARDED: "false", "team": "a"})];
        for guard in [
            json!({"approval": {}}),
            json!({"windows": [{}]}),
            json!({"hold": {"reason": "sale", "protected": true}}),
            json!({"analysis": [{}]}),
            json!({"approval": 1}),
        ] {
            for labels in &labels {
                assert_eq!(marked(&config(labels, &guard))[GUARDED], "true", "{labels} {guard}");
            }
        }
        for none in
            [json!(null), json!({"hold": {"reason": "sale"}}), json!({"approval": null, "windows": [], "analysis": []})]
        {
            for labels in &labels {
                assert_eq!(marked(&config(labels, &none)).get(GUARDED), None, "{labels} {none}");
            }
        }
        assert_eq!(marked(&config(&labels[3], &json!({"approval": {}})))["team"], "a");
    }

    #[test]
    fn a_refusal_names_what_is_taken_away() {
        let spec = |rollout: Value| serde_json::from_value::<VersionedConfigSpec>(json!({"rollout": rollout})).unwrap();
        let guarded = spec(json!({"approval": {"required": 2}, "hold": {"reason": "sale", "protected": true}}));
        let less =
            weakening(Some(&guarded), &spec(json!({"approval": {"required": 1}})), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            less.denial("eve", "team", "shop").message,
            "VersionedConfig shop: user \"eve\" may not change its spec, because that requires 1 approval instead of 2 and removes \
             spec.rollout.hold, which is protected; this needs the right to override VersionedConfig shop in namespace team"
        );
        let protects = weakening(None, &guarded, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(protects.because(), "that protects spec.rollout.hold");
        let mut config = VersionedConfig::new("shop", guarded);
        assert_eq!(deletes_guards(&config).unwrap().because(), "that removes its guards (approval, hold)");
        config.spec.rollout = RolloutSpec::default();
        assert_eq!(deletes_guards(&config), None);
    }
}
