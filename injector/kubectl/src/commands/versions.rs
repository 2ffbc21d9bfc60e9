//! `kubectl nudge versions`: lists the versions of a config, complete or not.

use std::collections::BTreeMap;

use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{VersionStatus, VersionedConfig};
use nudge_core::governance::short_digest;
use nudge_protocol::{ConfigName, labels};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Format;
use crate::output::table::table;
use crate::session::Session;
use crate::version::stored::{PartOrigin, StoredPart, label, objects, origin};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge versions game
  kubectl nudge versions game -o name")]
pub(crate) struct Versions {
    /// The config
    pub(crate) config: ConfigName,
    /// The output format
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Format>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionRow {
    version: String,
    /// The state as in `status.versions`. If the version is not sealed: `Invalid` if the version breaks a rule of
    /// spec.validation, `Retired` if it was sealed before, and else `Incomplete`.
    state: String,
    /// The kind and name of each object.
    objects: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// The digest of the content. Approvals name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seal_time: Option<Time>,
    /// The origin of the content, as a source has found it, or as the creator says.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<PartOrigin>,
}

/// Returns the origin of the version, from its first object that has an origin.
fn version_origin(version: &VersionStatus, stored: &[StoredPart]) -> Option<PartOrigin> {
    let is_part = |(kind, meta): &&StoredPart| {
        version.parts.iter().any(|part| {
            part.kind == *kind && meta.name.as_ref() == Some(&part.name) && meta.uid.as_ref() == Some(&part.uid)
        })
    };
    stored.iter().filter(is_part).find_map(|(_, meta)| origin(meta))
}

/// Returns the sealed versions in the order of their seals, then the other versions.
fn rows(config: &VersionedConfig, stored: &[StoredPart]) -> Vec<VersionRow> {
    let sealed = config.status.iter().flat_map(|status| &status.versions);
    let mut rows: Vec<VersionRow> = sealed
        .map(|version| VersionRow {
            version: version.version.clone(),
            state: format!("{:?}", version.state),
            objects: version.parts.iter().map(|part| format!("{}/{}", part.kind, part.name)).collect(),
            keys: Some(version.keys),
            bytes: Some(version.bytes),
            digest: Some(short_digest(version)),
            seal_time: version.seal_time.clone(),
            origin: version_origin(version, stored),
        })
        .collect();
    let mut incomplete: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (kind, meta) in stored.iter().filter(|(_, meta)| meta.deletion_timestamp.is_none()) {
        let version = label(meta, labels::VERSION);
        if !rows.iter().any(|row| row.version == version) {
            let name = meta.name.as_deref().unwrap_or_default();
            incomplete.entry(version).or_default().push(format!("{kind}/{name}"));
        }
    }
    let state = |name: &str| match &config.status {
        Some(status) if status.invalid.iter().any(|invalid| invalid.version == name) => "Invalid",
        Some(status) if status.internal.retired.iter().any(|retired| retired.version == name) => "Retired",
        _ => "Incomplete",
    };
    rows.extend(incomplete.into_iter().map(|(version, objects)| VersionRow {
        version: version.to_owned(),
        state: state(version).to_owned(),
        objects,
        ..VersionRow::default()
    }));
    rows
}

pub(crate) async fn run(session: &Session, command: &Versions) -> Result<(), Failure> {
    let name = command.config.as_str();
    let config = session.config(name).await?;
    let (stored, _) = objects(session, name, None).await?;
    let version_rows = rows(&config, &stored);
    match command.output {
        Some(Format::Name) => session.out.lines(version_rows.into_iter().map(|row| row.version)),
        Some(format) => session.out.document(&version_rows, format),
        None if version_rows.is_empty() => Err(Failure::new(format!(
            "config {name} has no versions; create one with kubectl nudge create {name} VERSION --from-file=…"
        ))),
        None => {
            let cells = |row: &VersionRow| {
                let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                vec![
                    row.version.clone(),
                    row.state.clone(),
                    row.objects.len().to_string(),
                    or_dash(row.keys.map(|keys| keys.to_string())),
                    or_dash(row.bytes.map(|bytes| bytes.to_string())),
                    or_dash(row.digest.clone()),
                    or_dash(row.seal_time.as_ref().map(|time| time.0.to_string())),
                    or_dash(row.origin.as_ref().map(PartOrigin::line)),
                ]
            };
            let mut cells: Vec<Vec<String>> = version_rows.iter().map(cells).collect();
            let mut headers = vec!["VERSION", "STATE", "OBJECTS", "KEYS", "BYTES", "DIGEST", "SEALED", "ORIGIN"];
            // Most versions are created by hand, and have no origin.
            if version_rows.iter().all(|row| row.origin.is_none()) {
                headers.pop();
                for row in &mut cells {
                    row.pop();
                }
            }
            session.out.print(&table(&headers, &cells))
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use nudge_api::PartKind;
    use serde_json::json;

    use super::*;

    fn meta(name: &str, version: &str) -> ObjectMeta {
        let labels = [(labels::VERSION.to_owned(), version.to_owned())].into();
        ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
    }

    #[test]
    fn versions_that_are_not_sealed_are_listed_last() {
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {},
            "status": {"versions": [{"version": "2", "state": "Current", "keys": 1, "bytes": 3,
                "parts": [{"kind": "ConfigMap", "name": "shop-2", "uid": "u", "digest": "d"}]}],
                "internal": {"retired": [{"version": "0", "digests": ["d"]}]}},
        }))
        .unwrap();
        let object = |name: &str, version: &str| (PartKind::Secret, meta(name, version));
        let rows = rows(&config, &[object("shop-1", "1"), object("shop-2", "2"), object("shop-0", "0")]);
        let short: Vec<_> =
            rows.iter().map(|row| (row.version.as_str(), row.state.as_str(), row.objects[0].as_str())).collect();
        let unsealed = [("0", "Retired", "Secret/shop-0"), ("1", "Incomplete", "Secret/shop-1")];
        assert_eq!(short, [("2", "Current", "ConfigMap/shop-2"), unsealed[0], unsealed[1]]);
        let digest = short_digest(&config.status.unwrap().versions[0]);
        assert_eq!((rows[0].digest.as_ref(), rows[2].digest.as_ref()), (Some(&digest), None));
    }

    #[test]
    fn the_objects_of_a_version_say_where_it_is_from() {
        let part = |name: &str| json!({"kind": "ConfigMap", "name": name, "uid": name, "digest": "d"});
        let version: VersionStatus =
            serde_json::from_value(json!({"version": "2", "state": "Current", "keys": 2, "bytes": 3,
            "parts": [part("shop-2-1"), part("shop-2-2")]}))
            .unwrap();
        let object = |name: &str, uid: &str, origin: &str| {
            let annotations = Some([(labels::ORIGIN.to_owned(), origin.to_owned())].into());
            (PartKind::ConfigMap, ObjectMeta { uid: Some(uid.to_owned()), annotations, ..meta(name, "2") })
        };
        let git = |url: &str| json!({"kind": "Git", "url": url}).to_string();
        let found = [
            object("planted", "planted", &git("https://evil.example/shop")),
            object("shop-2-1", "later", &git("https://evil.example/shop")),
            object("shop-2-1", "shop-2-1", "nothing that can be read"),
            object("shop-2-2", "shop-2-2", &git("https://git.example.com/shop")),
        ];
        assert_eq!(
            version_origin(&version, &found).unwrap().line(),
            "says it is from Git https://git.example.com/shop"
        );
        assert_eq!(version_origin(&version, &found[..3]), None);
    }
}
