//! Changes of a config that need rights on what Nudge does because of them. All that can move pods or change what the published ConfigMap
//! holds, also by deleting the config and creating it again, needs the right to update that ConfigMap, and where a Secret is published, or
//! is not any more, the right to update that Secret too. All that can make Nudge delete
//! versions needs the right to delete objects of their kinds.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::dynamic::DynamicObject;
use nudge_api::{PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_core::sources::holder;
use nudge_protocol::labels;

use crate::verdict::Denial;

/// The change that needs the right; `None` where there is none. The objects are compared as JSON, so unknown fields count too.
pub(crate) fn needs(old: Option<&DynamicObject>, new: &DynamicObject) -> Option<&'static str> {
    let Some(old) = old else { return Some("create it") };
    let forced = |object: &DynamicObject| {
        let annotations = object.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(labels::FORCE_DELETE)).is_some_and(|on| on == "true")
    };
    let retry = |object: &DynamicObject| object.metadata.annotations.as_ref()?.get(labels::RETRY).cloned();
    let finalizers = |object: &DynamicObject| object.metadata.finalizers.clone().unwrap_or_default();
    if old.data.get("spec") != new.data.get("spec") {
        return Some("change its spec");
    }
    if forced(new) && !forced(old) {
        return Some("set its annotation nudge.dev/force-delete");
    }
    if retry(new).is_some_and(|new| retry(old) != Some(new)) {
        return Some("set its annotation nudge.dev/retry");
    }
    let before = finalizers(old);
    if finalizers(new).iter().any(|one| !before.contains(one)) {
        return Some("add a finalizer to it");
    }
    gets_owner(Some(old), new).then_some("give it an owner")
}

/// The change of who sets `spec.version`: a source does where nobody else does. `stored` is what the API server holds, because it takes the
/// managers out of the old object of a review.
pub(crate) fn hands_over(stored: &ObjectMeta, new: &DynamicObject) -> Option<&'static str> {
    let differs = holder(stored).is_some() != holder(&new.metadata).is_some();
    differs.then_some("change who sets its spec.version")
}

/// Returns whether the config gets an owner that it did not have.
fn gets_owner(old: Option<&DynamicObject>, new: &DynamicObject) -> bool {
    let owners = |object: &DynamicObject| object.metadata.owner_references.clone().unwrap_or_default();
    let before = old.map(owners).unwrap_or_default();
    owners(new).iter().any(|one| !before.contains(one))
}

/// The change because of which versions are deleted sooner or later; `None` where there is none. A config that is created keeps as many
/// versions as one that does not say how many.
pub(crate) fn deletes(old: Option<&DynamicObject>, new: &DynamicObject) -> Option<&'static str> {
    let usual = u64::from(VersionedConfigSpec::default().history_limit);
    let limit = |object: &DynamicObject| object.data["spec"]["historyLimit"].as_u64().unwrap_or(usual);
    if limit(new) < old.map_or(usual, limit) {
        return Some("lower its historyLimit");
    }
    // The garbage collector deletes the config together with its owner, with rights of its own.
    gets_owner(old, new).then_some("give it an owner")
}

/// The kinds of objects that are parts of the config's versions.
pub(crate) fn kinds(config: &VersionedConfig) -> BTreeSet<PartKind> {
    let versions = config.status.iter().flat_map(|status| &status.versions);
    versions.flat_map(|version| version.parts.iter().map(|part| part.kind)).collect()
}

/// The denial for a user who may not delete objects of this kind.
pub(crate) fn may_not_delete(user: &str, namespace: &str, name: &str, what: &str, kind: PartKind) -> Denial {
    Denial::forbidden(format!(
        "VersionedConfig {name}: user {user:?} may not {what}, because that deletes its versions; this needs the right to delete \
         {kind}s in namespace {namespace}"
    ))
}

/// The kinds of the objects of the config's name that a user must be able to update who makes the change.
pub(crate) fn published(old: Option<&VersionedConfigSpec>, new: &VersionedConfigSpec) -> Vec<PartKind> {
    let secret = [old, Some(new)].into_iter().flatten().any(|spec| spec.publishes(PartKind::Secret));
    if secret { vec![PartKind::ConfigMap, PartKind::Secret] } else { vec![PartKind::ConfigMap] }
}

/// The denial for a user who may not update the published object of this kind.
pub(crate) fn not_permitted(user: &str, namespace: &str, name: &str, what: &str, kind: PartKind) -> Denial {
    Denial::forbidden(format!(
        "VersionedConfig {name}: user {user:?} may not {what}, because that decides what {kind} {name} holds; this needs the right to \
         update {kind} {name} in namespace {namespace}"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn object(value: &Value) -> DynamicObject {
        let mut all = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {}});
        json_patch::merge(&mut all, value);
        serde_json::from_value(all).unwrap()
    }

    fn changed(old: &Value, new: &Value) -> Option<&'static str> {
        needs(Some(&object(old)), &object(new))
    }

    #[test]
    fn every_change_that_can_move_pods_needs_the_right() {
        let none = json!({});
        assert_eq!(needs(None, &object(&none)), Some("create it"));
        for spec in [json!({"version": "1"}), json!({"rollout": {"bakeSeconds": 1}}), json!({"of a later Nudge": 1})] {
            let spec = json!({"spec": spec});
            assert_eq!(
                (changed(&none, &spec), changed(&spec, &none)),
                (Some("change its spec"), Some("change its spec"))
            );
            assert_eq!(changed(&spec, &spec), None);
        }
        let forced = |value: &str| json!({"metadata": {"annotations": {"nudge.dev/force-delete": value}}});
        assert_eq!(changed(&forced("no"), &forced("true")), Some("set its annotation nudge.dev/force-delete"));
        assert_eq!((changed(&none, &forced("no")), changed(&forced("true"), &none)), (None, None));
        let retried = |value: &str| json!({"metadata": {"annotations": {"nudge.dev/retry": value}}});
        assert_eq!(changed(&none, &retried("1")), Some("set its annotation nudge.dev/retry"));
        assert_eq!(changed(&retried("1"), &retried("2")), Some("set its annotation nudge.dev/retry"));
        assert_eq!((changed(&retried("1"), &retried("1")), changed(&retried("1"), &none)), (None, None));
        let set_by = |manager: &str| {
            let fields = json!({"f:spec": {"f:version": {}}});
            json!({"metadata": {"managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]}})
        };
        let handed = |before: &Value, after: &Value| hands_over(&object(before).metadata, &object(after));
        let who = Some("change who sets its spec.version");
        for before in [none.clone(), set_by("nudge-sources")] {
            assert_eq!((handed(&before, &set_by("flux")), handed(&set_by("flux"), &before)), (who, who), "{before}");
        }
        assert_eq!(handed(&set_by("flux"), &set_by("argocd")), None, "it is somebody else as before");
        assert_eq!(handed(&none, &set_by("nudge-sources")), None);
        let kept = |by: &[&str]| json!({"metadata": {"finalizers": by}});
        assert_eq!(changed(&kept(&["a/b"]), &kept(&["a/b", "c/d"])), Some("add a finalizer to it"));
        assert_eq!(changed(&kept(&["a/b", "c/d"]), &kept(&["c/d"])), None, "the end of a deletion");
        let owned = |uid: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid}]}});
        assert_eq!(changed(&none, &owned("1")), Some("give it an owner"));
        assert_eq!(changed(&owned("1"), &owned("2")), Some("give it an owner"));
        assert_eq!((changed(&owned("1"), &none), changed(&owned("1"), &owned("1"))), (None, None));
        assert_eq!(
            changed(&none, &json!({"metadata": {"labels": {"team": "a"}}, "status": {"currentVersion": "1"}})),
            None
        );
    }

    #[test]
    fn a_published_secret_needs_its_right_from_the_beginning_to_its_end() {
        let spec = |objects: Value| serde_json::from_value::<VersionedConfigSpec>(json!({"objects": objects})).unwrap();
        let (map, both) = (spec(json!(["ConfigMap"])), spec(json!(["ConfigMap", "Secret"])));
        let (alone, none) = (spec(json!(["Secret"])), spec(json!([])));
        let secret = |old: Option<&VersionedConfigSpec>, new: &VersionedConfigSpec| {
            let kinds = published(old, new);
            assert!(kinds.contains(&PartKind::ConfigMap), "it is needed to move pods");
            kinds.contains(&PartKind::Secret)
        };
        assert!(secret(None, &both) && secret(None, &alone) && !secret(None, &map) && !secret(None, &none));
        assert!(secret(Some(&map), &both) && secret(Some(&both), &map) && secret(Some(&both), &both));
        assert!(!secret(Some(&map), &none));
    }

    #[test]
    fn what_deletes_versions_is_a_lower_limit_or_an_owner() {
        let limit = |limit: u64| json!({"spec": {"historyLimit": limit}});
        let none = json!({});
        let lowers = |old: &Value, new: &Value| deletes(Some(&object(old)), &object(new)).is_some();
        assert!(lowers(&limit(5), &limit(4)) && lowers(&none, &limit(9)) && lowers(&limit(40), &none));
        assert!(!lowers(&limit(5), &limit(5)) && !lowers(&limit(5), &limit(6)) && !lowers(&limit(3), &none));
        let made = |new: &Value| deletes(None, &object(new));
        assert_eq!(
            (made(&limit(0)), made(&limit(9))),
            (Some("lower its historyLimit"), Some("lower its historyLimit"))
        );
        assert_eq!((made(&none), made(&limit(10)), made(&limit(40))), (None, None, None));
        let owned =
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}]}});
        assert_eq!(
            (made(&owned), lowers(&none, &owned), lowers(&owned, &owned)),
            (Some("give it an owner"), true, false)
        );
    }

    proptest! {
        #[test]
        fn every_difference_of_the_specs_needs_it(one in "[a-c]{0,2}", other in "[a-c]{0,2}", field in "[a-z]{1,8}") {
            let spec = |value: &str| json!({"spec": {field.as_str(): value}});
            prop_assert_eq!(changed(&spec(&one), &spec(&other)).is_some(), one != other);
        }
    }
}
