//! Changes of a config that weaken its guards: they need the right to override the config. A label marks the configs
//! that have guards. So the API server asks about the deletion of exactly these configs.

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use kube::core::dynamic::DynamicObject;
use nudge_api::{RolloutSpec, VersionedConfig, VersionedConfigSpec};
use nudge_core::governance::{describe_override, guard_fields, weakened_guards};
use nudge_protocol::labels::GUARDED;
use serde_json::Value;

use crate::lookups::Right;
use crate::needed_right::NeededRight;
use crate::patch::set_entries;

/// Returns the right needed for a request that weakens the guards of the config.
pub(crate) fn weakening<'a>(
    old: Option<&VersionedConfigSpec>,
    new: &VersionedConfigSpec,
    name: &'a str,
    now: Timestamp,
) -> Option<NeededRight<'a>> {
    let right = Right::Override(name);
    let less = weakened_guards(old.map_or(&RolloutSpec::default(), |old| &old.rollout), &new.rollout, now);
    if !less.is_empty() {
        let action = if old.is_some() { "change its spec" } else { "create it" };
        return Some(NeededRight::new(right, action, format!("that {}", less.join(" and "))));
    }
    let because = "that version then waits for no step, approval, window or hold";
    describe_override(old, new).map(|action| NeededRight::new(right, action, because))
}

/// Returns the right that the deletion of a config with guards needs.
pub(crate) fn removed_guards<'a>(config: &VersionedConfig, name: &'a str) -> Option<NeededRight<'a>> {
    let guards = guard_fields(&config.spec.rollout);
    let because = format!("that removes its guards ({})", guards.join(", "));
    (!guards.is_empty()).then(|| NeededRight::new(Right::Override(name), "delete it", because))
}

/// Returns the operations that set the label of a config with guards, or remove the label of a config without guards.
/// The schema is checked later, so the guards may be any JSON.
pub(crate) fn mark_guarded(config: &DynamicObject) -> Vec<PatchOperation> {
    let rollout = &config.data["spec"]["rollout"];
    let is_empty = |field: &Value| field.is_null() || field.as_array().is_some_and(Vec::is_empty);
    let is_guarded = ["approval", "windows", "analysis"].iter().any(|field| !is_empty(&rollout[*field]))
        || rollout["hold"]["protected"] == true;
    set_entries("labels", config.metadata.labels.as_ref(), [(GUARDED, is_guarded.then(|| "true".to_owned()))])
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;
    use serde_json::json;

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
            weakening(Some(&guarded), &spec(json!({"approval": {"required": 1}})), "shop", Timestamp::UNIX_EPOCH)
                .unwrap();
        assert_eq!(
            less.denial("VersionedConfig shop", "eve", "team").message,
            "VersionedConfig shop: user \"eve\" may not change its spec, because that requires 1 approval instead of 2 and removes \
             spec.rollout.hold, which is protected; this needs the right to override VersionedConfig shop in namespace team"
        );
        let protects = weakening(None, &guarded, "shop", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(protects.because, "that protects spec.rollout.hold");
        let mut config = VersionedConfig::new("shop", guarded);
        assert_eq!(removed_guards(&config, "shop").unwrap().because, "that removes its guards (approval, hold)");
        config.spec.rollout = RolloutSpec::default();
        assert_eq!(removed_guards(&config, "shop"), None);
    }
}
