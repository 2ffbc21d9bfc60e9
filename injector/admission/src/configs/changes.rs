//! The differences between a stored and a new config that need a right, a warning or a line of the audit trail.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::dynamic::DynamicObject;
use nudge_api::{Analysis, Override, VersionedConfigSpec};
use nudge_core::sources::version_manager;
use nudge_protocol::labels::{IMPORTING, RETRY};

use super::deletion::is_forced;

/// Returns the change that can move pods or change the content of published objects, even by deleting the config and
/// creating it again. The objects are compared as JSON, so unknown fields count, too.
pub(crate) fn content_change(old: Option<&DynamicObject>, new: &DynamicObject) -> Option<&'static str> {
    let Some(old) = old else { return Some("create it") };
    if old.data.get("spec") != new.data.get("spec") {
        return Some("change its spec");
    }
    if is_forced(new) && !is_forced(old) {
        return Some("set its annotation nudge.dev/force-delete");
    }
    let retry = new.annotations().get(RETRY);
    if retry.is_some() && retry != old.annotations().get(RETRY) {
        return Some("set its annotation nudge.dev/retry");
    }
    if new.finalizers().iter().any(|finalizer| !old.finalizers().contains(finalizer)) {
        return Some("add a finalizer to it");
    }
    gets_owner(Some(old), new).then_some("give it an owner")
}

/// Returns the change of who sets `spec.version`: a source does if nobody else does. `stored` is the object in the API
/// server, which takes the managers out of the old object of a review.
pub(crate) fn setter_change(stored: &ObjectMeta, new: &DynamicObject) -> Option<&'static str> {
    let differs = version_manager(stored).is_some() != version_manager(&new.metadata).is_some();
    differs.then_some("change who sets its spec.version")
}

/// Returns the change that sooner or later causes versions to be deleted. A created config is compared with one that
/// does not say how many versions to keep.
pub(crate) fn deleting_change(old: Option<&DynamicObject>, new: &DynamicObject) -> Option<&'static str> {
    let usual = u64::from(VersionedConfigSpec::default().history_limit);
    let limit = |object: &DynamicObject| object.data["spec"]["historyLimit"].as_u64().unwrap_or(usual);
    if limit(new) < old.map_or(usual, limit) {
        return Some("lower its historyLimit");
    }
    // The garbage collector deletes the config together with its owner, with rights of its own.
    gets_owner(old, new).then_some("give it an owner")
}

fn gets_owner(old: Option<&DynamicObject>, new: &DynamicObject) -> bool {
    let stored = old.map(ResourceExt::owner_references).unwrap_or_default();
    new.owner_references().iter().any(|owner| !stored.contains(owner))
}

/// Returns the change of the annotation `nudge.dev/importing`: while a config has it, nothing acts on the config, and
/// somebody else writes its status.
pub(crate) fn import_change(old: Option<&DynamicObject>, new: &DynamicObject) -> Option<&'static str> {
    let (stored, wanted) = (old.and_then(|old| old.annotations().get(IMPORTING)), new.annotations().get(IMPORTING));
    if stored == wanted {
        return None;
    }
    let is_set = wanted.is_some();
    Some(if is_set { "set its annotation nudge.dev/importing" } else { "remove its annotation nudge.dev/importing" })
}

/// Returns the analyses of the new spec, if they differ from the old ones.
pub(crate) fn new_analyses<'a>(
    old: Option<&VersionedConfigSpec>,
    new: &'a VersionedConfigSpec,
) -> Option<&'a [Analysis]> {
    let new = &new.rollout.analysis;
    let is_same = old.map_or(new.is_empty(), |old| old.rollout.analysis == *new);
    (!is_same).then_some(new)
}

/// Returns whether a request sets, changes or removes `spec.version`.
pub(crate) fn chooses_version(old: Option<&VersionedConfigSpec>, new: &VersionedConfigSpec) -> bool {
    old.and_then(|old| old.version.as_deref()) != new.version.as_deref()
}

/// Returns the override of the new spec, if the request sets or changes it.
pub(crate) fn new_override<'a>(
    old: Option<&VersionedConfigSpec>,
    new: &'a VersionedConfigSpec,
) -> Option<&'a Override> {
    let stored = old.and_then(|old| old.rollout.overridden.as_ref());
    new.rollout.overridden.as_ref().filter(|wanted| stored != Some(*wanted))
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
        content_change(Some(&object(old)), &object(new))
    }

    #[test]
    fn every_change_that_can_move_pods_needs_the_right() {
        let none = json!({});
        assert_eq!(content_change(None, &object(&none)), Some("create it"));
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
        let handed = |before: &Value, after: &Value| setter_change(&object(before).metadata, &object(after));
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
    fn what_deletes_versions_is_a_lower_limit_or_an_owner() {
        let limit = |limit: u64| json!({"spec": {"historyLimit": limit}});
        let none = json!({});
        let lowers = |old: &Value, new: &Value| deleting_change(Some(&object(old)), &object(new)).is_some();
        assert!(lowers(&limit(5), &limit(4)) && lowers(&none, &limit(9)) && lowers(&limit(40), &none));
        assert!(!lowers(&limit(5), &limit(5)) && !lowers(&limit(5), &limit(6)) && !lowers(&limit(3), &none));
        let made = |new: &Value| deleting_change(None, &object(new));
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

    #[test]
    fn every_change_of_the_annotation_counts_and_nothing_else() {
        let annotated = |annotations: &Value| object(&json!({"metadata": {"annotations": annotations}}));
        let (none, other) = (annotated(&json!(null)), annotated(&json!({"note": "a"})));
        let (set, changed) = (annotated(&json!({IMPORTING: ""})), annotated(&json!({IMPORTING: "x", "note": "a"})));
        for (old, new) in [(None, &none), (None, &other), (Some(&none), &other), (Some(&set), &set)] {
            assert_eq!(import_change(old, new), None);
        }
        for (old, new) in [(None, &set), (Some(&none), &set), (Some(&set), &changed)] {
            assert!(import_change(old, new).unwrap().starts_with("set its annotation"));
        }
        assert!(import_change(Some(&set), &other).unwrap().starts_with("remove its annotation"));
    }

    fn spec(version: Option<&str>) -> VersionedConfigSpec {
        VersionedConfigSpec { version: version.map(str::to_owned), ..VersionedConfigSpec::default() }
    }

    #[test]
    fn only_a_change_of_the_version_counts() {
        let [none, one, two] = [spec(None), spec(Some("1")), spec(Some("2"))];
        assert!(!chooses_version(None, &none));
        assert!(chooses_version(None, &one));
        assert!(!chooses_version(Some(&one), &one));
        assert!(chooses_version(Some(&one), &two));
        assert!(chooses_version(Some(&one), &none));
    }

    proptest! {
        #[test]
        fn every_difference_of_the_specs_needs_it(one in "[a-c]{0,2}", other in "[a-c]{0,2}", field in "[a-z]{1,8}") {
            let spec = |value: &str| json!({"spec": {field.as_str(): value}});
            prop_assert_eq!(changed(&spec(&one), &spec(&other)).is_some(), one != other);
        }
    }
}
