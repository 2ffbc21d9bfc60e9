//! What an import does: each object of the export with what is there, and what of versions can't come back.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use nudge_api::VersionedConfig;
use nudge_protocol::labels;
use serde_json::Value;

use crate::backup::compare::{self, Comparison};
use crate::backup::document::{Kind, Place, document, label};
use crate::backup::export::Export;
use crate::backup::part::{Sealed, parts};
use crate::commands::export::get;
use crate::failure::Failure;
use crate::session::Session;

/// What is to be done: each object of the export with what is there, and its uid.
pub(super) struct Plan {
    pub(super) found: BTreeMap<Place, (Comparison, Option<String>)>,
    /// Secrets that are neither in the export nor in the cluster, by config.
    pub(super) missing: BTreeMap<Place, Vec<String>>,
    /// Parts that neither the export nor the cluster has as they were sealed, by config, each with its version.
    broken: BTreeMap<Place, BTreeSet<(String, Place)>>,
}

impl Plan {
    /// The parts of a config's versions, without those that are broken.
    pub(super) fn parts<'a>(
        &'a self,
        place: &'a Place,
        config: &'a VersionedConfig,
    ) -> impl Iterator<Item = Sealed<'a>> {
        let broken = self.broken.get(place);
        parts(place, config).filter(move |sealed| {
            broken.is_none_or(|broken| !broken.contains(&(sealed.version.to_owned(), sealed.place())))
        })
    }

    /// Looks for all that the export has.
    pub(super) async fn find(session: &Session, export: &Export) -> Result<Self, Failure> {
        let (mut found, mut missing) = (BTreeMap::new(), BTreeMap::<_, Vec<String>>::new());
        for (place, exported) in &export.objects {
            let existing = get(session, place.kind, &place.namespace, &place.name).await?;
            let uid = existing.as_ref().and_then(|existing| existing.metadata.uid.clone());
            found.insert(place.clone(), (compared(export, place, exported, existing)?, uid));
        }
        let mut broken = BTreeMap::<_, BTreeSet<(String, Place)>>::new();
        for (place, config) in &export.configs {
            let seals = export.seals(place, config)?;
            // Nothing of it is written then.
            let is_there = matches!(found.get(place), Some((Comparison::Same, _)));
            for sealed in parts(place, config) {
                let object = sealed.place();
                let is_whole = if let Some(exported) = export.objects.get(&object) {
                    sealed.fault(exported, seals.as_ref()).is_none()
                } else if let Some(there) = get(session, object.kind, &object.namespace, &object.name).await? {
                    let uid = there.metadata.uid.clone();
                    match compare::unexported(&sealed, &document(object.kind, there), seals.as_ref()) {
                        Comparison::Differs(_) if is_there => false,
                        Comparison::Nothing => false,
                        what => {
                            found.insert(object.clone(), (what, uid));
                            true
                        }
                    }
                } else if object.kind == Kind::Secret {
                    missing.entry(place.clone()).or_default().push(object.name.clone());
                    true
                } else {
                    false
                };
                if !is_whole {
                    broken.entry(place.clone()).or_default().insert((sealed.version.to_owned(), object));
                }
            }
        }
        Ok(Self { found, missing, broken })
    }

    /// Prints the plan. Fails where an object is in the way.
    pub(super) fn show(&self, session: &Session, export: &Export, dry_run: bool) -> Result<(), Failure> {
        let differing: Vec<String> = self
            .found
            .iter()
            .filter_map(|(place, (found, _))| match found {
                Comparison::Differs(why) => Some(format!("{place} exists and differs: {why}")),
                _ => None,
            })
            .collect();
        if dry_run {
            let rows = self.found.iter().filter(|(place, _)| export.objects.contains_key(place));
            session.out.lines(rows.map(|(place, (found, _))| {
                let what = match found {
                    Comparison::Nothing => "create",
                    Comparison::Same => "is there",
                    Comparison::Importing => "write spec and status",
                    Comparison::Differs(_) => "REFUSED",
                };
                format!("{what}: {place}")
            }))?;
        }
        for (config, secrets) in &self.missing {
            session.out.warn(&format!(
                "config {}/{} lacks its Secrets: {}",
                config.namespace,
                config.name,
                secrets.join(", ")
            ));
        }
        for (config, parts) in &self.broken {
            let parts: Vec<String> =
                parts.iter().map(|(version, object)| format!("version {version} ({object})")).collect();
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
            "the cluster has other objects than the export, so nothing was changed; delete those that the export is to replace, or annotate \
             the configs with nudge.dev/importing= to have their spec and status overwritten",
        ))
    }
}

/// What is in the place of an object of the export.
pub(super) fn compared(
    export: &Export,
    place: &Place,
    exported: &Value,
    there: Option<DynamicObject>,
) -> Result<Comparison, Failure> {
    let Some(there) = there else { return Ok(Comparison::Nothing) };
    let value =
        serde_json::to_value(&there).map_err(|error| Failure::new(format!("{place} can't be read: {error}")))?;
    Ok(match place.kind {
        Kind::Policy | Kind::Source => compare::spec(exported, &value),
        Kind::Config => {
            let unreadable = |error: serde_json::Error| Failure::new(format!("{place} can't be read: {error}"));
            let config: VersionedConfig = serde_json::from_value(value.clone()).map_err(unreadable)?;
            let known = export.configs.get(place).map(|known| (known, exported));
            known.map_or(Comparison::Same, |known| compare::config(known, (&config, &value)))
        }
        // The published ConfigMap belongs to its user, who may have made it anew.
        Kind::ConfigMap if label(exported, labels::CONFIG).is_none() => Comparison::Same,
        Kind::ConfigMap | Kind::Secret => compare::part(exported, &with_kind(place.kind, value)),
    })
}

/// The object with the kind that it was asked for by.
fn with_kind(kind: Kind, mut value: Value) -> Value {
    let resource = kind.resource();
    value["apiVersion"] = resource.api_version.into();
    value["kind"] = resource.kind.into();
    value
}

fn has_no_version(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_none_or(|status| status.versions.is_empty())
}
