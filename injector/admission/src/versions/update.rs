//! A version is never changed. Labels and annotations that are not Nudge's may change.

use std::collections::BTreeMap;

use nudge_protocol::labels;

use super::part_shape;
use crate::verdict::Denial;
use crate::version_object::VersionObject;

/// Decides about a change of an object that is, or would become, part of a version.
pub(crate) fn check_update(old: &VersionObject, new: &VersionObject) -> Result<(), Denial> {
    match (old.is_labelled(), new.is_labelled()) {
        (false, false) => return Ok(()),
        (false, true) => return Err(deny_becoming(new)),
        (true, _) => {}
    }
    let title = old.part_title();
    check_marks(&title, "label", old.metadata.labels.as_ref(), new.metadata.labels.as_ref())?;
    check_marks(&title, "annotation", old.metadata.annotations.as_ref(), new.metadata.annotations.as_ref())?;
    if old.content != new.content || old.secret_type != new.secret_type {
        return Err(Denial::forbidden(format!(
            "{title} must not be changed, because a version never changes; create another version with the new content"
        )));
    }
    if old.is_terminating() {
        return Ok(());
    }
    if !new.immutable {
        return Err(Denial::forbidden(format!(
            "{title} must stay immutable, because a version is never changed; set immutable: true"
        )));
    }
    if old.metadata.owner_references.iter().flatten().next().is_none() {
        part_shape::check_owners(new)?;
    }
    Ok(())
}

fn deny_becoming(new: &VersionObject) -> Denial {
    Denial::forbidden(format!(
        "{} already exists and can't become a version by being labelled; create a new object with the labels {} and {}",
        new.title(),
        labels::CONFIG,
        labels::VERSION
    ))
}

type Marks = BTreeMap<String, String>;

/// Denies a change of Nudge's labels or annotations.
fn check_marks(title: &str, what: &str, old: Option<&Marks>, new: Option<&Marks>) -> Result<(), Denial> {
    let value = |marks: Option<&Marks>, name: &str| marks.and_then(|marks| marks.get(name).cloned());
    let names = old.into_iter().chain(new).flat_map(BTreeMap::keys);
    let mut changed_names =
        names.filter(|name| name.starts_with(labels::PREFIX) && value(old, name) != value(new, name));
    let Some(name) = changed_names.next() else { return Ok(()) };
    Err(Denial::forbidden(format!(
        "{title} can't be changed, and so neither can its {what} {name}; create another version, or delete this one"
    )))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use nudge_api::PartKind;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{content, message, part, set_annotation, set_label};

    const TITLE: &str = "ConfigMap a, part of version 1.0.1 of config shop,";

    fn version() -> VersionObject {
        part(PartKind::ConfigMap, "a")
    }

    fn changed(change: impl FnOnce(&mut VersionObject)) -> Result<(), Denial> {
        let mut new = version();
        change(&mut new);
        check_update(&version(), &new)
    }

    fn refused(change: impl FnOnce(&mut VersionObject)) -> String {
        message(changed(change))
    }

    #[test]
    fn what_is_not_nudges_may_change() {
        assert_eq!(changed(|new| set_label(new, "team", "a")), Ok(()));
        assert_eq!(changed(|new| set_annotation(new, "note", "b")), Ok(()));
        assert_eq!(changed(|new| new.metadata.finalizers = Some(vec!["a/b".into()])), Ok(()));
    }

    #[test]
    fn content_and_type_stay() {
        assert_eq!(
            refused(|new| new.content = content(&[("lives", "4")])),
            format!(
                "{TITLE} must not be changed, because a version never changes; create another version with the new content"
            )
        );
        assert!(changed(|new| new.secret_type = Some("other".into())).is_err());
        assert_eq!(
            refused(|new| new.immutable = false),
            format!("{TITLE} must stay immutable, because a version is never changed; set immutable: true")
        );
    }

    #[test]
    fn nudges_labels_and_annotations_stay() {
        assert_eq!(
            refused(|new| set_label(new, labels::VERSION, "2")),
            format!(
                "{TITLE} can't be changed, and so neither can its label nudge.dev/version; create another version, or \
                     delete this one"
            )
        );
        assert!(refused(|new| set_annotation(new, labels::PARTS, "2")).contains("its annotation nudge.dev/parts;"));
        assert!(refused(|new| new.metadata.labels = None).contains("its label nudge.dev/config;"));
        assert!(refused(|new| set_label(new, labels::PRUNE, "true")).contains("its label nudge.dev/prune;"));
    }

    #[test]
    fn an_object_does_not_become_a_version() {
        let mut plain = version();
        plain.metadata.labels = None;
        assert_eq!(
            message(check_update(&plain, &version())),
            "ConfigMap a already exists and can't become a version by being labelled; create a new object with the labels \
             nudge.dev/config and nudge.dev/version"
        );
        assert_eq!(check_update(&plain, &plain), Ok(()));
    }

    #[test]
    fn no_owner_is_added_and_one_that_is_there_stops_nothing() {
        let owner = OwnerReference { kind: "Deployment".into(), name: "web".into(), ..OwnerReference::default() };
        let owned = |object: &mut VersionObject| object.metadata.owner_references = Some(vec![owner.clone()]);
        assert!(refused(owned).contains("belongs to Deployment web"));
        let mut old = version();
        owned(&mut old);
        assert_eq!(check_update(&old, &old), Ok(()));
    }

    #[test]
    fn the_last_steps_of_a_deletion_pass() {
        let mut old = version();
        old.immutable = false;
        assert!(check_update(&old, &old).is_err());
        old.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(check_update(&old, &old), Ok(()));
    }

    proptest! {
        #[test]
        fn a_change_passes_exactly_if_nothing_of_nudges_differs(
            name in "(nudge\\.dev/)?[a-z]{1,3}", value in "[ab]", lives in "[34]", annotation in any::<bool>(),
        ) {
            let result = changed(|new| {
                if annotation { set_annotation(new, &name, &value) } else { set_label(new, &name, &value) }
                new.content = content(&[("lives", &lives)]);
            });
            prop_assert_eq!(result.is_ok(), !name.starts_with(labels::PREFIX) && lives == "3");
        }
    }
}
