//! Compares an object of an export with the one in the cluster. An import creates the object, leaves it as it is, or
//! refuses because another object has its place.

use nudge_api::{VersionStatus, VersionedConfig, VersionedConfigStatus};
use nudge_core::config::is_importing;
use nudge_core::versions::Seals;
use nudge_protocol::labels;
use serde_json::Value;

use super::part::{Sealed, content};

/// The object in the cluster, compared with the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Nothing,
    /// The object that the export has.
    Same,
    /// A config that is being imported: its spec and its status are written.
    Importing,
    /// Another object, with the differences.
    Differs(String),
}

/// Compares a version's object with the one in the cluster.
pub(crate) fn part(exported: &Value, stored: &Value) -> Comparison {
    let mark = |object: &Value, field: &str, name: &str| object["metadata"][field][name].clone();
    let marks = [
        ("labels", labels::CONFIG),
        ("labels", labels::VERSION),
        ("labels", labels::PART),
        ("annotations", labels::PARTS),
    ];
    let differs = |(field, name): &(&str, &str)| mark(exported, field, name) != mark(stored, field, name);
    if let Some((_, name)) = marks.into_iter().find(differs) {
        return Comparison::Differs(format!("{name} differs"));
    }
    // A missing field and an empty one are the same.
    match (content(exported), content(stored)) {
        (Some(old), Some(new)) if old == new && exported["immutable"] == stored["immutable"] => Comparison::Same,
        _ => Comparison::Differs("it has other content".to_owned()),
    }
}

/// Compares a sealed part that the export lacks with the object in its place in the cluster. An object of another
/// version counts as nothing.
pub(crate) fn unexported(sealed: &Sealed<'_>, stored: &Value, seals: Option<&Seals>) -> Comparison {
    match sealed.fault(stored, seals) {
        None => Comparison::Same,
        Some(_) if sealed.is_of_another(stored) => Comparison::Nothing,
        Some(fault) => Comparison::Differs(format!("it {fault} of {}", sealed.title())),
    }
}

/// Compares a policy or a source with the one in the cluster.
pub(crate) fn spec(exported: &Value, stored: &Value) -> Comparison {
    if exported["spec"] == stored["spec"] {
        Comparison::Same
    } else {
        Comparison::Differs("its spec differs".to_owned())
    }
}

/// Compares a config with the one in the cluster; both specs as JSON, so that unknown fields count, too.
pub(crate) fn config(exported: (&VersionedConfig, &Value), stored: (&VersionedConfig, &Value)) -> Comparison {
    if is_importing(stored.0) {
        return Comparison::Importing;
    }
    let (exported_status, status) = (status(exported.0), status(stored.0));
    let mut differences: Vec<String> = Vec::new();
    if exported.1["spec"] != stored.1["spec"] {
        differences.push("spec".to_owned());
    }
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    for (field, old, new) in [
        ("internal.identity", &exported_status.internal.identity, &status.internal.identity),
        ("currentVersion", &exported_status.current_version, &status.current_version),
        ("targetVersion", &exported_status.target_version, &status.target_version),
    ] {
        if old != new {
            differences.push(format!(
                "status.{field}: {} in the export, {} in the cluster",
                or_none(old),
                or_none(new)
            ));
        }
    }
    let digests = |version: &VersionStatus| version.parts.iter().map(|part| part.digest.clone()).collect::<Vec<_>>();
    let missing: Vec<&str> = exported_status
        .versions
        .iter()
        .filter(|version| status.version(&version.version).is_none_or(|stored| digests(stored) != digests(version)))
        .map(|version| version.version.as_str())
        .take(10)
        .collect();
    if !missing.is_empty() {
        differences.push(format!("versions that are missing or differ: {}", missing.join(", ")));
    }
    if differences.is_empty() { Comparison::Same } else { Comparison::Differs(differences.join("; ")) }
}

fn status(config: &VersionedConfig) -> VersionedConfigStatus {
    config.status.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nudge_api::PartStatus;
    use nudge_core::versions::part_digest;
    use serde_json::json;

    use super::super::document::{DocumentKind, Place};
    use super::*;

    #[test]
    fn a_part_is_the_same_by_its_content_and_its_marks() {
        let object = |value: &str, version: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"a": value},
                "metadata": {"labels": {"nudge.dev/version": version}, "annotations": {"nudge.dev/made-by": value}},
            })
        };
        assert_eq!(part(&object("1", "1"), &object("1", "1")), Comparison::Same);
        assert_eq!(part(&object("1", "1"), &object("2", "1")), Comparison::Differs("it has other content".to_owned()));
        assert_eq!(
            part(&object("1", "1"), &object("1", "2")),
            Comparison::Differs("nudge.dev/version differs".to_owned())
        );
    }

    #[test]
    fn what_the_export_lacks_must_be_what_was_sealed() {
        let config = Place::new(DocumentKind::Config, "team", "shop");
        let digest = part_digest(&BTreeMap::from([("a".to_owned(), b"1")]), None);
        let part: PartStatus =
            serde_json::from_value(json!({"kind": "ConfigMap", "name": "shop-1", "uid": "u", "digest": digest}))
                .unwrap();
        let sealed = Sealed { config: &config, version: "1", number: 1, part: &part };
        let stored = |value: &str, version: &str| {
            let metadata = json!({"labels": {"nudge.dev/config": "shop", "nudge.dev/version": version}});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"a": value}, "metadata": metadata})
        };
        assert_eq!(unexported(&sealed, &stored("1", "1"), None), Comparison::Same);
        let cause = "it does not have the content that was sealed as part of version 1 of config team/shop";
        assert_eq!(unexported(&sealed, &stored("2", "1"), None), Comparison::Differs(cause.to_owned()));
        assert_eq!(unexported(&sealed, &stored("1", "2"), None), Comparison::Nothing, "it is another version's");
        let mut bare = stored("1", "1");
        bare["metadata"] = json!({});
        let cause = "it does not have the labels of version 1 of config team/shop";
        assert_eq!(
            unexported(&sealed, &bare, None),
            Comparison::Differs(cause.to_owned()),
            "it may be what somebody made again"
        );
    }

    #[test]
    fn a_config_that_continued_differs_and_says_in_what() {
        let config_with = |current: &str, versions: &[&str]| -> VersionedConfig {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| json!({"version": version, "state": "Available", "keys": 1, "bytes": 1, "parts": []}))
                .collect();
            serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {},
                "status": {"currentVersion": current, "versions": versions},
            }))
            .unwrap()
        };
        let (spec, other) = (json!({"spec": {}}), json!({"spec": {"version": "3"}}));
        let newer = config_with("2", &["1", "2"]);
        assert_eq!(config((&newer, &spec), (&newer, &spec)), Comparison::Same);
        let Comparison::Differs(cause) = config((&newer, &spec), (&config_with("1", &["1"]), &other)) else { panic!() };
        assert_eq!(
            cause,
            "spec; status.currentVersion: 2 in the export, 1 in the cluster; versions that are missing or differ: 2"
        );
        let mut importing = config_with("1", &[]);
        importing.metadata.annotations = Some([(labels::IMPORTING.to_owned(), String::new())].into());
        assert_eq!(config((&newer, &spec), (&importing, &other)), Comparison::Importing);
    }
}
