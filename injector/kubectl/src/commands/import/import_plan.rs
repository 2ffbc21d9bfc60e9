//! The plan of an import: each object of the export with the cluster's object, and the parts that can't be restored.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use nudge_api::VersionedConfig;
use nudge_protocol::labels;
use serde_json::Value;

use crate::backup::compare::{self, Comparison};
use crate::backup::document::{DocumentKind, Place, document, label};
use crate::backup::export::ParsedExport;
use crate::backup::part::{Sealed, parts};
use crate::commands::export::get;
use crate::failure::Failure;
use crate::session::Session;

/// The object that the cluster has in the place of one of the export.
pub(super) struct ExistingObject {
    pub(super) comparison: Comparison,
    pub(super) uid: Option<String>,
}

/// A part that neither the export nor the cluster has as it was sealed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct BrokenPart {
    version: String,
    object: Place,
}

pub(super) struct ImportPlan {
    /// The objects of the export, and those parts that only the cluster has.
    pub(super) existing: BTreeMap<Place, ExistingObject>,
    /// The names of Secrets that are neither in the export nor in the cluster, by config.
    pub(super) missing_secrets: BTreeMap<Place, Vec<String>>,
    /// The broken parts, by config.
    broken: BTreeMap<Place, BTreeSet<BrokenPart>>,
}

impl ImportPlan {
    /// Returns the parts of a config's versions, without those that are broken.
    pub(super) fn usable_parts<'a>(
        &'a self,
        place: &'a Place,
        config: &'a VersionedConfig,
    ) -> impl Iterator<Item = Sealed<'a>> {
        let broken = self.broken.get(place);
        parts(place, config)
            .filter(move |sealed| broken.is_none_or(|broken| !broken.contains(&BrokenPart::new(sealed))))
    }

    /// Compares the export with the cluster.
    pub(super) async fn new(session: &Session, export: &ParsedExport) -> Result<Self, Failure> {
        let (mut existing, mut missing_secrets) = (BTreeMap::new(), BTreeMap::<_, Vec<String>>::new());
        for (place, exported) in &export.objects {
            let object = get(session, place.kind, &place.namespace, &place.name).await?;
            let uid = object.as_ref().and_then(|object| object.metadata.uid.clone());
            let comparison = compare_object(export, place, exported, object)?;
            existing.insert(place.clone(), ExistingObject { comparison, uid });
        }
        let mut broken = BTreeMap::<_, BTreeSet<BrokenPart>>::new();
        for (place, config) in &export.configs {
            let seals = export.seals(place, config)?;
            // An import writes nothing of a config that is the same.
            let is_same = existing.get(place).is_some_and(|existing| existing.comparison == Comparison::Same);
            for sealed in parts(place, config) {
                let object = sealed.place();
                let is_usable = if let Some(exported) = export.objects.get(&object) {
                    sealed.fault(exported, seals.as_ref()).is_none()
                } else if let Some(stored) = get(session, object.kind, &object.namespace, &object.name).await? {
                    let uid = stored.metadata.uid.clone();
                    match compare::unexported(&sealed, &document(object.kind, stored), seals.as_ref()) {
                        Comparison::Differs(_) if is_same => false,
                        Comparison::Nothing => false,
                        comparison => {
                            existing.insert(object, ExistingObject { comparison, uid });
                            true
                        }
                    }
                } else if object.kind == DocumentKind::Secret {
                    missing_secrets.entry(place.clone()).or_default().push(object.name);
                    true
                } else {
                    false
                };
                if !is_usable {
                    broken.entry(place.clone()).or_default().insert(BrokenPart::new(&sealed));
                }
            }
        }
        Ok(Self { existing, missing_secrets, broken })
    }

    /// Prints the plan. Fails if an object is in the way.
    pub(super) fn show(&self, session: &Session, export: &ParsedExport, dry_run: bool) -> Result<(), Failure> {
        let differing: Vec<String> = self
            .existing
            .iter()
            .filter_map(|(place, existing)| match &existing.comparison {
                Comparison::Differs(cause) => Some(format!("{place} exists and differs: {cause}")),
                _ => None,
            })
            .collect();
        if dry_run {
            let rows = self.existing.iter().filter(|(place, _)| export.objects.contains_key(place));
            session.out.lines(rows.map(|(place, existing)| {
                let action = match existing.comparison {
                    Comparison::Nothing => "create",
                    Comparison::Same => "is there",
                    Comparison::Importing => "write spec and status",
                    Comparison::Differs(_) => "REFUSED",
                };
                format!("{action}: {place}")
            }))?;
        }
        for (config, secrets) in &self.missing_secrets {
            session.out.warn(&format!(
                "config {}/{} lacks its Secrets: {}",
                config.namespace,
                config.name,
                secrets.join(", ")
            ));
        }
        for (config, parts) in &self.broken {
            let parts: Vec<String> =
                parts.iter().map(|part| format!("version {} ({})", part.version, part.object)).collect();
            session.out.warn(&format!(
                "config {}/{} is imported with versions that can't be used, because the export lacks what they were sealed with: {}",
                config.namespace,
                config.name,
                parts.join(", ")
            ));
        }
        for (config, _) in export.configs.iter().filter(|(_, config)| has_no_version(config)) {
            session.out.warn(&format!("config {}/{} is imported without a version", config.namespace, config.name));
        }
        if differing.is_empty() {
            return Ok(());
        }
        session.out.lines(differing)?;
        Err(Failure::new(
            "the cluster has other objects than the export, so nothing was changed; delete those that the export \
             replaces, or annotate configs with nudge.dev/importing= to overwrite them",
        ))
    }
}

impl BrokenPart {
    fn new(sealed: &Sealed<'_>) -> Self {
        Self { version: sealed.version.to_owned(), object: sealed.place() }
    }
}

/// Compares an object of the export with the one that the cluster has in its place.
pub(super) fn compare_object(
    export: &ParsedExport,
    place: &Place,
    exported: &Value,
    stored: Option<DynamicObject>,
) -> Result<Comparison, Failure> {
    let Some(stored) = stored else { return Ok(Comparison::Nothing) };
    let unreadable = |error: serde_json::Error| Failure::new(format!("{place} can't be read: {error}"));
    let value = serde_json::to_value(&stored).map_err(unreadable)?;
    Ok(match place.kind {
        DocumentKind::Policy | DocumentKind::Source => compare::spec(exported, &value),
        DocumentKind::Config => {
            let config: VersionedConfig = serde_json::from_value(value.clone()).map_err(unreadable)?;
            let exported = export.configs.get(place).map(|config| (config, exported));
            exported.map_or(Comparison::Same, |exported| compare::config(exported, (&config, &value)))
        }
        // The published ConfigMap belongs to its user, who may have created it again.
        DocumentKind::ConfigMap if label(exported, labels::CONFIG).is_none() => Comparison::Same,
        DocumentKind::ConfigMap | DocumentKind::Secret => compare::part(exported, &with_kind(place.kind, value)),
    })
}

/// Adds the requested kind to the object.
fn with_kind(kind: DocumentKind, mut value: Value) -> Value {
    let resource = kind.resource();
    value["apiVersion"] = resource.api_version.into();
    value["kind"] = resource.kind.into();
    value
}

fn has_no_version(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_none_or(|status| status.versions.is_empty())
}
