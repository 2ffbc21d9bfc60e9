//! Versions as the API server stores them.

use std::collections::BTreeMap;

use kube::api::{ListParams, ObjectMeta};
use nudge_api::{Origin, PartKind, PartStatus, VersionStatus, VersionedConfig};
use nudge_core::versions::{Contents, object_name};
use nudge_protocol::names::CURRENT;
use nudge_protocol::{VersionName, labels};
use serde::Serialize;

use crate::failure::Failure;
use crate::session::Session;

/// The account that creates versions of sources.
const SOURCES: &str = "system:serviceaccount:nudge-system:nudge-sources";

/// The contents of a version, by the kinds of its objects.
pub(crate) type ContentsByKind = BTreeMap<PartKind, Contents>;

/// The kind and the metadata of one object of a version.
pub(crate) type StoredPart = (PartKind, ObjectMeta);

/// Lists the objects of the config, or of one of its versions. Returns them, and whether Secrets could be listed.
pub(crate) async fn objects(
    session: &Session,
    config: &str,
    version: Option<&str>,
) -> Result<(Vec<StoredPart>, bool), Failure> {
    if VersionName::new(config).is_err() {
        let message = format!(
            "config {config}: its name is too long for a label, which holds 63 characters; choose a shorter name"
        );
        return Err(Failure::new(message));
    }
    let version_selector = version.map(|version| format!(",{}={version}", labels::VERSION));
    let selector = format!("{}={config}{}", labels::CONFIG, version_selector.unwrap_or_default());
    let params = ListParams::default().labels(&selector);
    let mut objects = Vec::new();
    for kind in [PartKind::ConfigMap, PartKind::Secret] {
        match session.parts(kind).list_metadata(&params).await {
            Ok(list) => objects.extend(list.items.into_iter().map(|object| (kind, object.metadata))),
            Err(kube::Error::Api(status)) if kind == PartKind::Secret && status.code == 403 => {
                return Ok((objects, false));
            }
            Err(error) => return Err(Failure::of(&format!("listing {kind}s of config {config}"), &error)),
        }
    }
    Ok((objects, true))
}

/// Returns the value of a label, or nothing.
pub(crate) fn label<'a>(meta: &'a ObjectMeta, label: &str) -> &'a str {
    meta.labels.as_ref().and_then(|labels| labels.get(label)).map(String::as_str).unwrap_or_default()
}

/// The origin of an object's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PartOrigin {
    #[serde(flatten)]
    origin: Origin,
    /// Whether a source has created the object, as noted by admission. Otherwise, the origin is the creator's own
    /// statement.
    made_by_source: bool,
}

impl PartOrigin {
    /// Returns the origin in one line, for a table.
    pub(crate) fn line(&self) -> String {
        let claim = if self.made_by_source { "" } else { "says it is from " };
        format!("{claim}{}", self.origin.line())
    }

    /// Returns the origin as the page writes it below a version.
    pub(crate) fn phrase(&self) -> String {
        let prefix = if self.made_by_source { "from " } else { "" };
        format!("{prefix}{}", self.line())
    }
}

/// Returns the origin of the object's content.
pub(crate) fn origin(meta: &ObjectMeta) -> Option<PartOrigin> {
    let annotations = meta.annotations.as_ref()?;
    let origin = Origin::read(annotations.get(labels::ORIGIN)?)?;
    let author = annotations.get(labels::MADE_BY).and_then(|note| note.splitn(3, ' ').nth(2));
    Some(PartOrigin { origin, made_by_source: author == Some(SOURCES) })
}

/// Returns the failure for a config that has no current version.
pub(crate) fn no_current_version(config: &str) -> Failure {
    Failure::new(format!("config {config} has no current version yet; see kubectl nudge status {config}"))
}

/// Returns the sealed version of this name; the name `current` means the current version.
pub(crate) fn sealed<'a>(config: &'a VersionedConfig, name: &str) -> Result<&'a VersionStatus, Failure> {
    let config_name = config.metadata.name.as_deref().unwrap_or_default();
    let status = config.status.as_ref();
    let name = match (name, status.and_then(|status| status.current_version.as_deref())) {
        (CURRENT, Some(current)) => current,
        (CURRENT, None) => return Err(no_current_version(config_name)),
        (name, _) => name,
    };
    status.and_then(|status| status.version(name)).ok_or_else(|| {
        let names: Vec<&str> =
            status.into_iter().flat_map(|status| &status.versions).map(|version| version.version.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Failure::new(format!("config {config_name} has no complete version {name}; it has: {names}"))
    })
}

/// Returns the sealed version of one side of a comparison. `None` stands for `current` if the config has no current
/// version yet.
pub(crate) fn diff_side<'a>(config: &'a VersionedConfig, name: &str) -> Result<Option<&'a VersionStatus>, Failure> {
    let has_current = config.status.as_ref().is_some_and(|status| status.current_version.is_some());
    if name == CURRENT && !has_current { Ok(None) } else { sealed(config, name).map(Some) }
}

/// Reads the content of a sealed version.
pub(crate) async fn contents(session: &Session, version: &VersionStatus) -> Result<ContentsByKind, Failure> {
    contents_of_parts(session, version, false).await
}

/// Reads the content of the parts of a sealed version that the user may read. Warnings name the Secrets that the user
/// may not read.
pub(crate) async fn readable_contents(session: &Session, version: &VersionStatus) -> Result<ContentsByKind, Failure> {
    contents_of_parts(session, version, true).await
}

async fn contents_of_parts(
    session: &Session,
    version: &VersionStatus,
    readable_only: bool,
) -> Result<ContentsByKind, Failure> {
    let mut contents = ContentsByKind::new();
    for part in &version.parts {
        match content(session, &version.version, part).await {
            Ok(content) => contents.entry(part.kind).or_default().extend(content),
            Err(failure) if readable_only && failure.status == 403 && part.kind == PartKind::Secret => {
                session.out.warn(&format!(
                    "the keys of {} are not shown: {}",
                    object_name(part.kind, &part.name),
                    failure.message
                ));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(contents)
}

/// Reads the content of each object with the labels of this version, sealed or not.
pub(crate) async fn labelled(session: &Session, config: &str, version: &str) -> Result<ContentsByKind, Failure> {
    let (objects, secrets_listed) = objects(session, config, Some(version)).await?;
    if objects.is_empty() {
        let hint = if secrets_listed { "" } else { ", or it has Secrets alone, which you may not list" };
        return Err(Failure::new(format!(
            "config {config} has no version {version}{hint}; see kubectl nudge versions {config}"
        )));
    }
    let mut contents = ContentsByKind::new();
    for (kind, meta) in objects.iter().filter(|(_, meta)| meta.deletion_timestamp.is_none()) {
        let (name, uid) = (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
        let part = PartStatus { kind: *kind, name, uid, digest: String::new() };
        contents.entry(*kind).or_default().extend(content(session, version, &part).await?);
    }
    Ok(contents)
}

async fn content(session: &Session, version: &str, part: &PartStatus) -> Result<Contents, Failure> {
    match session.read_part(part.kind, &part.name).await? {
        Some(object) if object.metadata.uid.as_ref() == Some(&part.uid) => Ok(object.content.into_parts().0),
        _ => Err(Failure::new(format!(
            "{} of version {version} was deleted or replaced after the version was sealed; create it again with the same content",
            object_name(part.kind, &part.name)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_origin_is_a_fact_only_where_a_source_has_made_the_object() {
        let says = |author: Option<&str>| {
            let written = json!({"kind": "Git", "url": "https://git.example.com/shop"}).to_string();
            let note = author.map(|author| (labels::MADE_BY.to_owned(), format!("1790000000 dGFn {author}")));
            let annotations = [(labels::ORIGIN.to_owned(), written)].into_iter().chain(note).collect();
            let found = origin(&ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() }).unwrap();
            (found.line(), found.phrase())
        };
        let fact = "Git https://git.example.com/shop";
        assert_eq!(says(Some(SOURCES)), (fact.to_owned(), format!("from {fact}")));
        let said = format!("says it is from {fact}");
        for author in [None, Some("alice"), Some("alice system:serviceaccount:nudge-system:nudge-sources")] {
            assert_eq!(says(author), (said.clone(), said.clone()), "{author:?}");
        }
    }

    #[test]
    fn before_the_first_current_version_a_comparison_has_an_empty_side() {
        let config = |current: Option<&str>| -> VersionedConfig {
            let part = json!({"kind": "ConfigMap", "name": "game-1", "uid": "u", "digest": "d"});
            let version = json!({"version": "1", "state": "Available", "keys": 1, "bytes": 1, "parts": [part]});
            serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "game"}, "spec": {},
                "status": {"currentVersion": current, "versions": [version]},
            }))
            .unwrap()
        };
        let side_version =
            |current, name| diff_side(&config(current), name).map(|side| side.map(|side| side.version.clone()));
        let first = Ok(Some("1".to_owned()));
        for (current, name, expected) in [
            (None, "current", Ok(None)),
            (None, "1", first.clone()),
            (Some("1"), "current", first.clone()),
            (Some("1"), "1", first),
        ] {
            assert_eq!(side_version(current, name), expected, "{current:?} {name}");
        }
        for current in [None, Some("1")] {
            assert!(side_version(current, "2").unwrap_err().message.contains("no complete version 2; it has: 1"));
        }
    }
}
