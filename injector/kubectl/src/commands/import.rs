//! `kubectl nudge import`: gives a cluster the configs of an export, so that agents at work are notified of nothing.
//!
//! A config is created with the annotation `nudge.dev/importing`, and Nudge leaves it alone. Then its versions are
//! created, its status is written, and the annotation is taken away. Each step finds what an import before has done, so
//! one that was interrupted can be repeated.

mod plan;

use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PostParams};
use kube::core::DynamicObject;
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_cluster::call::is_conflict;
use nudge_cluster::lenient::Lenient;
use nudge_core::config::is_importing;
use nudge_core::derived_keys::{ROOT, entries};
use nudge_core::sources;
use nudge_protocol::labels;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use self::plan::{Plan, compared};
use super::export::{CONTENT_KEY_SECRET, api, counted, get};
use crate::backup::compare::Comparison;
use crate::backup::document::{HELD_BY, Kind, Place};
use crate::backup::export::Export;
use crate::backup::status::{Uids, carried};
use crate::backup::stream::MAX_BYTES;
use crate::backup::{age, export_signature};
use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::session::{FIELD_MANAGER, Session, creating, patching};

/// How often a status is written again that somebody else has written in the same moment.
const MAX_TRIES: usize = 10;

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Nothing is changed if an object of the export exists and differs. An import that was interrupted can be repeated.
You need the ClusterRole nudge-restore. The file decides what pods get: sign exports, and use --verify.

Examples:
  kubectl nudge import -f nudge.yaml --verify ops.pub --identity key.txt
  kubectl nudge import -f nudge.yaml --identity key.txt --content-key
  kubectl nudge import -f nudge.yaml --identity key.txt --dry-run
  kubectl nudge import -f nudge.yaml --identity key.txt"
)]
pub(crate) struct Import {
    /// The export; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,
    /// Refuse the export unless FILE.sig is its signature by one of the public keys of SSH in this file
    #[arg(long, value_name = "KEYS")]
    pub(crate) verify: Option<PathBuf>,
    /// The file with the key of age that decrypts the Secrets
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Restore the content key and nothing else, before Nudge is installed and makes one
    #[arg(long, requires = "identity")]
    pub(crate) content_key: bool,
    /// Finish configs whose Secrets are missing: versions without them can't be used
    #[arg(long)]
    pub(crate) without_secrets: bool,
    /// Print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The namespace of Nudge itself
    #[arg(long, default_value = "nudge-system", value_name = "NAMESPACE")]
    pub(crate) system_namespace: String,
}

pub(crate) async fn run(session: &Session, command: &Import) -> Result<(), Failure> {
    let text = read(command)?;
    let unsigned = signed(session, command, &text)?;
    let mut export = Export::parse(&text)?;
    if let Some(why) = unsigned {
        session.out.warn(why);
    }
    match (&command.identity, &export.encrypted) {
        (Some(identity), Some(armored)) => {
            let plain = age::decrypt(identity, armored)?;
            export.add_secrets(&plain)?;
        }
        (Some(_), None) => session.out.warn("the export has no encrypted Secrets"),
        (None, Some(_)) => session.out.warn("the Secrets of the export are not restored: there is no --identity"),
        (None, None) => {}
    }
    if command.content_key {
        return content_key(session, &export, command).await;
    }
    namespaces(session, &export).await?;
    let plan = Plan::find(session, &export).await?;
    plan.show(session, &export, command.dry_run)?;
    if command.dry_run {
        return Ok(());
    }
    // Policies come first: with their config's status, versions go on. Sources come last: they make versions.
    for place in export.objects.keys().filter(|place| place.kind == Kind::Policy) {
        create(session, &export, &plan, place).await?;
    }
    let (count, mut waiting, mut failed) = (export.configs.len(), 0, 0);
    for (at, (place, config)) in export.configs.iter().enumerate() {
        let progress = format!("config {}/{} ({} of {count})", place.namespace, place.name, at + 1);
        match import(session, &export, &plan, (place, config), command, &progress).await {
            Ok(finished) => waiting += usize::from(!finished),
            // The API server refuses what this one has; it may take the others.
            Err(failure) if failure.status != 0 => {
                session.out.warn(&format!("{progress}: {}", failure.message));
                failed += 1;
            }
            Err(failure) => return Err(failure),
        }
    }
    if failed > 0 {
        return Err(Failure::new(format!(
            "{failed} of {count} configs, and all ConfigSources, are not imported; do what the warnings say, and run the command \
             again"
        )));
    }
    if waiting > 0 {
        return Err(Failure::new(format!(
            "{waiting} of {count} configs wait for Secrets, and Nudge leaves them alone until then: create the Secrets as they were and run \
             the command again, or add --without-secrets"
        )));
    }
    for place in export.objects.keys().filter(|place| place.kind == Kind::Source) {
        create(session, &export, &plan, place).await?;
    }
    session.out.line(&format!(
        "imported {} of the export of {}",
        counted(count, "config"),
        export.header.exported_at
    ))?;
    for what in export.header.left_out.iter().chain(&export.header.missing) {
        session.out.note(&format!("not in the export: {what}"));
    }
    Ok(())
}

/// Checks who signed the export. Returns a warning where nobody has, or nobody asks.
fn signed(session: &Session, command: &Import, text: &str) -> Result<Option<&'static str>, Failure> {
    let file = Some(&command.filename).filter(|file| file.as_os_str() != "-");
    let signature = file.map(|file| export_signature::beside(file));
    match (&command.verify, signature) {
        (Some(keys), Some(signature)) => {
            export_signature::verify(text, &signature, keys)?;
            session.out.note(&format!("the export is signed with a key of {}", keys.display()));
            Ok(None)
        }
        (Some(_), None) => Err(Failure::usage("--verify needs a file (-f FILE): the signature is read from FILE.sig")),
        (None, Some(signature)) if signature.exists() => {
            Ok(Some("nobody checks who signed the export: there is no --verify"))
        }
        (None, _) => Ok(Some("nobody signed the export: a user who can write the file decides what pods get")),
    }
}

fn read(command: &Import) -> Result<Zeroizing<String>, Failure> {
    let name = command.filename.display();
    let failure = |error: std::io::Error| Failure::new(format!("reading {name}: {error}"));
    let mut text = Zeroizing::new(String::new());
    let most = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
    if command.filename.as_os_str() == "-" {
        std::io::stdin().take(most).read_to_string(&mut text).map_err(failure)?;
    } else {
        std::fs::File::open(&command.filename)
            .map_err(failure)?
            .take(most)
            .read_to_string(&mut text)
            .map_err(failure)?;
    }
    if text.len() > MAX_BYTES {
        return Err(Failure::new(format!("{name} has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// All namespaces must be there, and Nudge should work in them.
async fn namespaces(session: &Session, export: &Export) -> Result<(), Failure> {
    let api: Api<Namespace> = Api::all(session.client.clone());
    let mut missing = Vec::new();
    for name in export.namespaces() {
        let found = api.get_metadata_opt(name).await.map_err(doing(format!("reading namespace {name}")))?;
        match found {
            None => missing.push(name),
            Some(found) => {
                let enabled =
                    found.metadata.labels.unwrap_or_default().get(labels::ENABLED).is_some_and(|on| on == "true");
                if !enabled {
                    session.out.warn(&format!(
                        "namespace {name} is not enabled; kubectl nudge enable {name} lets Nudge work in it"
                    ));
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("these namespaces do not exist; create and enable them first: {}", missing.join(", "))))
}

/// Creates an object of the export, if it is not there. Returns its uid.
async fn create(session: &Session, export: &Export, plan: &Plan, place: &Place) -> Result<Option<String>, Failure> {
    if let Some((Comparison::Same, uid)) = plan.found.get(place) {
        return Ok(uid.clone());
    }
    let Some(exported) = export.objects.get(place) else { return Ok(None) };
    let mut object = exported.clone();
    if place.kind == Kind::Config {
        object["metadata"]["annotations"][labels::IMPORTING] = export.header.exported_at.clone().into();
        let fields = object.as_object_mut();
        fields.map(|fields| (fields.remove("status"), fields.remove(HELD_BY)));
        let metadata = object["metadata"].as_object_mut();
        metadata.map(|metadata| metadata.remove("generation"));
    }
    let failure = |error: serde_json::Error| Failure::new(format!("{place} can't be created: {error}"));
    let object: DynamicObject = serde_json::from_value(object).map_err(failure)?;
    let namespace = Some(place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let result = api(session, place.kind, namespace).create(&creating(DryRun::None), &Lenient(object)).await;
    match result {
        Ok(Lenient(created)) => Ok(created.metadata.uid),
        // Somebody was faster; it must be what the export has.
        Err(error) if is_conflict(&error) => {
            let existing = get(session, place.kind, &place.namespace, &place.name).await?;
            let uid = existing.as_ref().and_then(|existing| existing.metadata.uid.clone());
            match compared(export, place, exported, existing)? {
                Comparison::Same | Comparison::Importing => Ok(uid),
                Comparison::Nothing => {
                    Err(Failure::new(format!("somebody creates and deletes {place}; run the command again")))
                }
                Comparison::Differs(why) => {
                    Err(Failure::new(format!("{place} exists and differs: {why}; run the command again")))
                }
            }
        }
        Err(error) => Err(Failure::of(&format!("creating {place}"), &error)),
    }
}

/// Imports a config. Returns whether it is finished.
async fn import(
    session: &Session,
    export: &Export,
    plan: &Plan,
    (place, config): (&Place, &VersionedConfig),
    command: &Import,
    progress: &str,
) -> Result<bool, Failure> {
    let published = Place::new(Kind::ConfigMap, &place.namespace, &place.name);
    match plan.found.get(place).map(|(found, _)| found) {
        Some(Comparison::Same) => {
            for sealed in plan.parts(place, config) {
                create(session, export, plan, &sealed.place()).await?;
            }
            create(session, export, plan, &published).await?;
            session.out.note(&format!("{progress}: is there already"));
            return Ok(true);
        }
        Some(Comparison::Importing) => overwrite(session, export, place).await?,
        _ => drop(create(session, export, plan, place).await?),
    }
    let mut uids = Uids::new();
    for sealed in plan.parts(place, config) {
        let object = sealed.place();
        let Some(uid) = create(session, export, plan, &object).await? else { continue };
        uids.insert((sealed.part.kind, object.name), uid);
    }
    create(session, export, plan, &published).await?;
    let missing = plan.missing.get(place).map(Vec::as_slice).unwrap_or_default();
    if !missing.is_empty() && !command.without_secrets {
        session.out.note(&format!("{progress}: waits for {} Secrets", missing.len()));
        return Ok(false);
    }
    write_status(session, (place, config), &uids).await?;
    release(session, export, place).await?;
    session.out.note(&format!("{progress}: restored"));
    Ok(true)
}

/// Takes the annotation away. If the config has a source that nobody else kept from it, `spec.version` is the source's
/// again.
async fn release(session: &Session, export: &Export, place: &Place) -> Result<(), Failure> {
    let of_config = |document: &Value| {
        let source = serde_json::from_value::<ConfigSource>(document.clone());
        source.is_ok_and(|source| source.config() == place.name)
    };
    let mut sources =
        export.objects.iter().filter(|(source, _)| source.kind == Kind::Source && source.namespace == place.namespace);
    let is_held = export.objects.get(place).is_some_and(|config| config.get(HELD_BY).is_some());
    let gives = !is_held && sources.any(|(_, document)| of_config(document));
    let ending = || format!("ending the import of {place}");
    let configs: Api<VersionedConfig> = Api::namespaced(session.client.clone(), &place.namespace);
    let mut patch = json!({"metadata": {"annotations": {labels::IMPORTING: null}}});
    for _ in 0..MAX_TRIES {
        if gives {
            let config = configs.get(&place.name).await.map_err(doing(ending()))?;
            patch["metadata"]["resourceVersion"] = json!(config.metadata.resource_version);
            patch["metadata"]["managedFields"] = json!(sources::release(&config));
        }
        match configs.patch_metadata(&place.name, &patching(DryRun::None), &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(()),
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(Failure::of(&ending(), &error)),
        }
    }
    Err(Failure::new(format!("somebody else keeps writing {place}; run the command again")))
}

/// Gives a config that is being imported the spec of the export.
async fn overwrite(session: &Session, export: &Export, place: &Place) -> Result<(), Failure> {
    let Some(exported) = export.objects.get(place) else { return Ok(()) };
    for _ in 0..MAX_TRIES {
        let existing = get(session, Kind::Config, &place.namespace, &place.name).await?;
        let Some(mut existing) = existing else { return Err(gone_failure(place)) };
        if existing.data["spec"] == exported["spec"] {
            return Ok(());
        }
        existing.data["spec"] = exported["spec"].clone();
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match api(session, Kind::Config, Some(&place.namespace)).replace(&place.name, &params, &Lenient(existing)).await
        {
            Ok(_) => return Ok(()),
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(Failure::of(&format!("writing the spec of {place}"), &error)),
        }
    }
    Err(Failure::new(format!("somebody else keeps writing the spec of {place}; run the command again")))
}

fn gone_failure(place: &Place) -> Failure {
    Failure::new(format!("{place} was deleted meanwhile; run the command again"))
}

/// Writes the status, while the config is being imported and not otherwise.
async fn write_status(
    session: &Session,
    (place, exported): (&Place, &VersionedConfig),
    uids: &Uids,
) -> Result<(), Failure> {
    let api: Api<Lenient<VersionedConfig>> = Api::namespaced(session.client.clone(), &place.namespace);
    for _ in 0..MAX_TRIES {
        let reading = doing(format!("reading {place}"));
        let Some(Lenient(mut there)) = api.get_opt(&place.name).await.map_err(reading)? else {
            return Err(gone_failure(place));
        };
        if !is_importing(&there) {
            return Err(Failure::new(format!(
                "the annotation {} of {place} was removed before its status was written; delete the config and run the command again",
                labels::IMPORTING
            )));
        }
        let generation = there.metadata.generation;
        let kept = exported.status.clone().unwrap_or_default();
        there.status = Some(carried(kept, generation, uids, &Time(Timestamp::now())));
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match api.replace_status(&place.name, &params, &Lenient(there)).await {
            Ok(_) => return Ok(()),
            // The controller says that the config is being imported.
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(Failure::of(&format!("writing the status of {place}"), &error)),
        }
    }
    Err(Failure::new(format!("somebody else keeps writing the status of {place}; run the command again")))
}

/// Gives Nudge the content key, where it has none.
async fn content_key(session: &Session, export: &Export, command: &Import) -> Result<(), Failure> {
    let namespace = command.system_namespace.as_str();
    let Some(key) = &export.content_key else {
        return Err(Failure::new("the export has no content key; make the export with --content-key"));
    };
    let what = format!("Secret {CONTENT_KEY_SECRET} in namespace {namespace}");
    let secrets: Api<Secret> = Api::namespaced(session.client.clone(), namespace);
    let found = secrets.get_opt(CONTENT_KEY_SECRET).await.map_err(doing(format!("reading {what}")))?;
    let exists = found.is_some();
    let mut secret = found.unwrap_or_default();
    let there =
        secret.data.as_ref().and_then(|data| data.get(ROOT)).map(|key| key.0.as_slice()).filter(|key| !key.is_empty());
    match there {
        Some(there) if there == key.as_slice() => return session.out.line("the content key is there already"),
        Some(_) => {
            return Err(Failure::new(format!(
                "{what} has another key, which versions of this cluster may be sealed with; to replace it, stop Nudge and delete the Secret"
            )));
        }
        None => {}
    }
    secret.metadata.name = Some(CONTENT_KEY_SECRET.to_owned());
    secret.immutable = Some(true);
    secret.data = Some(entries(key).map(|(entry, bytes)| (entry.to_owned(), ByteString(bytes.to_vec()))).into());
    if command.dry_run {
        return session.out.line(&format!("write: {what}"));
    }
    let params = creating(DryRun::None);
    let written = if exists {
        secrets.replace(CONTENT_KEY_SECRET, &params, &secret).await
    } else {
        secrets.create(&params, &secret).await
    };
    written.map_err(doing(format!("writing {what}")))?;
    session.out.line("the content key is restored; now install Nudge, and import without --content-key")
}
