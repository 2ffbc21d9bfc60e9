//! The restoration of one config and its objects.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::Patch;
use kube::core::DynamicObject;
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_cluster::call::is_conflict;
use nudge_cluster::lenient_object::Lenient;
use nudge_core::config::is_importing;
use nudge_core::sources;
use nudge_protocol::labels;
use nudge_protocol::plural::counted;
use serde_json::{Value, json};

use super::import_plan::{ImportPlan, compare_object};
use crate::backup::compare::Comparison;
use crate::backup::document::{DocumentKind, MANAGED_BY, Place};
use crate::backup::export::ParsedExport;
use crate::backup::status::{Uids, restored_status};
use crate::commands::export::{api, get};
use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::session::{Session, creating, patching};

/// The maximum number of writes of a status that somebody else keeps writing.
const MAX_WRITE_ATTEMPTS: usize = 10;

/// An import under way.
pub(super) struct Restore<'a> {
    pub(super) session: &'a Session,
    pub(super) export: &'a ParsedExport,
    pub(super) plan: &'a ImportPlan,
    pub(super) without_secrets: bool,
}

/// The result for a config.
pub(super) enum RestoreOutcome {
    Existed,
    WaitsForSecrets(usize),
    Restored,
}

impl fmt::Display for RestoreOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Existed => out.write_str("is there already"),
            Self::WaitsForSecrets(count) => write!(out, "waits for {}", counted(*count, "Secret")),
            Self::Restored => out.write_str("restored"),
        }
    }
}

impl Restore<'_> {
    /// Creates all objects of a kind that do not exist.
    pub(super) async fn create_all(&self, kind: DocumentKind) -> Result<(), Failure> {
        for place in self.export.objects.keys().filter(|place| place.kind == kind) {
            self.create(place).await?;
        }
        Ok(())
    }

    /// Creates an object of the export if it does not exist. Returns its uid.
    async fn create(&self, place: &Place) -> Result<Option<String>, Failure> {
        let Self { session, export, plan, .. } = self;
        if let Some(existing) = plan.existing.get(place).filter(|existing| existing.comparison == Comparison::Same) {
            return Ok(existing.uid.clone());
        }
        let Some(exported) = export.objects.get(place) else { return Ok(None) };
        let mut object = exported.clone();
        if place.kind == DocumentKind::Config {
            object["metadata"]["annotations"][labels::IMPORTING] = export.header.exported_at.clone().into();
            let fields = object.as_object_mut();
            fields.map(|fields| (fields.remove("status"), fields.remove(MANAGED_BY)));
            let metadata = object["metadata"].as_object_mut();
            metadata.map(|metadata| metadata.remove("generation"));
        }
        let failure = |error: serde_json::Error| Failure::new(format!("{place} can't be created: {error}"));
        let object: DynamicObject = serde_json::from_value(object).map_err(failure)?;
        let namespace = Some(place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let result = api(session, place.kind, namespace).create(&creating(DryRun::None), &Lenient(object)).await;
        match result {
            Ok(Lenient(created)) => Ok(created.metadata.uid),
            // Somebody else was faster, and must have created the same object as in the export.
            Err(error) if is_conflict(&error) => {
                let existing = get(session, place.kind, &place.namespace, &place.name).await?;
                let uid = existing.as_ref().and_then(|existing| existing.metadata.uid.clone());
                match compare_object(export, place, exported, existing)? {
                    Comparison::Same | Comparison::Importing => Ok(uid),
                    Comparison::Nothing => {
                        Err(Failure::new(format!("somebody creates and deletes {place}; run the command again")))
                    }
                    Comparison::Differs(cause) => {
                        Err(Failure::new(format!("{place} exists and differs: {cause}; run the command again")))
                    }
                }
            }
            Err(error) => Err(Failure::of(&format!("creating {place}"), &error)),
        }
    }

    /// Restores a config with its versions, as far as their Secrets exist.
    pub(super) async fn config(&self, place: &Place, config: &VersionedConfig) -> Result<RestoreOutcome, Failure> {
        let published = Place::new(DocumentKind::ConfigMap, &place.namespace, &place.name);
        let comparison = self.plan.existing.get(place).map(|existing| &existing.comparison);
        if comparison == Some(&Comparison::Importing) {
            self.overwrite_spec(place).await?;
        } else {
            self.create(place).await?;
        }
        let mut uids = Uids::new();
        for sealed in self.plan.usable_parts(place, config) {
            let object = sealed.place();
            let Some(uid) = self.create(&object).await? else { continue };
            uids.insert((sealed.part.kind, object.name), uid);
        }
        self.create(&published).await?;
        if comparison == Some(&Comparison::Same) {
            return Ok(RestoreOutcome::Existed);
        }
        let missing = self.plan.missing_secrets.get(place).map_or(0, Vec::len);
        if missing > 0 && !self.without_secrets {
            return Ok(RestoreOutcome::WaitsForSecrets(missing));
        }
        self.write_status(place, config, &uids).await?;
        self.end_import(place).await?;
        Ok(RestoreOutcome::Restored)
    }

    /// Removes the annotation. Gives `spec.version` back to the config's source, unless somebody else held it.
    async fn end_import(&self, place: &Place) -> Result<(), Failure> {
        let objects = &self.export.objects;
        let is_of_config = |document: &Value| {
            let source = serde_json::from_value::<ConfigSource>(document.clone());
            source.is_ok_and(|source| source.config() == place.name)
        };
        let mut sources = objects
            .iter()
            .filter(|(source, _)| source.kind == DocumentKind::Source && source.namespace == place.namespace);
        let is_managed = objects.get(place).is_some_and(|config| config.get(MANAGED_BY).is_some());
        let releases_version = !is_managed && sources.any(|(_, document)| is_of_config(document));
        let context = || format!("ending the import of {place}");
        let configs: Api<VersionedConfig> = Api::namespaced(self.session.client.clone(), &place.namespace);
        let mut patch = json!({"metadata": {"annotations": {labels::IMPORTING: null}}});
        for _ in 0..MAX_WRITE_ATTEMPTS {
            if releases_version {
                let config = configs.get(&place.name).await.map_err(doing(context()))?;
                patch["metadata"]["resourceVersion"] = json!(config.metadata.resource_version);
                patch["metadata"]["managedFields"] = json!(sources::release_version_field(&config));
            }
            match configs.patch_metadata(&place.name, &patching(DryRun::None), &Patch::Merge(&patch)).await {
                Ok(_) => return Ok(()),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(Failure::of(&context(), &error)),
            }
        }
        Err(Failure::new(format!("somebody else keeps writing {place}; run the command again")))
    }

    /// Gives a config that is being imported the spec of the export.
    async fn overwrite_spec(&self, place: &Place) -> Result<(), Failure> {
        let Some(exported) = self.export.objects.get(place) else { return Ok(()) };
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let existing = get(self.session, DocumentKind::Config, &place.namespace, &place.name).await?;
            let mut existing = existing.ok_or_else(|| deleted_meanwhile(place))?;
            if existing.data["spec"] == exported["spec"] {
                return Ok(());
            }
            existing.data["spec"] = exported["spec"].clone();
            let configs = api(self.session, DocumentKind::Config, Some(&place.namespace));
            match configs.replace(&place.name, &creating(DryRun::None), &Lenient(existing)).await {
                Ok(_) => return Ok(()),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(Failure::of(&format!("writing the spec of {place}"), &error)),
            }
        }
        Err(Failure::new(format!("somebody else keeps writing the spec of {place}; run the command again")))
    }

    /// Writes the status if the config is being imported, and fails otherwise.
    async fn write_status(&self, place: &Place, exported: &VersionedConfig, uids: &Uids) -> Result<(), Failure> {
        let client = self.session.client.clone();
        let api: Api<Lenient<VersionedConfig>> = Api::namespaced(client, &place.namespace);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let config = api.get_opt(&place.name).await.map_err(doing(format!("reading {place}")))?;
            let Lenient(mut config) = config.ok_or_else(|| deleted_meanwhile(place))?;
            if !is_importing(&config) {
                return Err(Failure::new(format!(
                    "the annotation {} of {place} was removed before its status was written; delete the config and run the command again",
                    labels::IMPORTING
                )));
            }
            let (status, generation) = (exported.status.clone().unwrap_or_default(), config.metadata.generation);
            config.status = Some(restored_status(status, generation, uids, &Time(Timestamp::now())));
            match api.replace_status(&place.name, &creating(DryRun::None), &Lenient(config)).await {
                Ok(_) => return Ok(()),
                // The controller has reported that the config is being imported.
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(Failure::of(&format!("writing the status of {place}"), &error)),
            }
        }
        Err(Failure::new(format!("somebody else keeps writing the status of {place}; run the command again")))
    }
}

fn deleted_meanwhile(place: &Place) -> Failure {
    Failure::new(format!("{place} was deleted meanwhile; run the command again"))
}
