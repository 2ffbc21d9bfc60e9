//! `kubectl nudge create`: all objects of a version or none.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};
use nudge_api::{PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_core::versions::{baseline_refusal, object_name};
use nudge_protocol::labels;
use serde_json::{Value, json};

use super::arguments::{Create, DryRun};
use super::failure::{Failure, doing};
use super::object_names::{names, was_used};
use super::output::{Format, Output};
use super::parts::{Object, Part, divide, object};
use super::session::{Session, creating};
use super::sources;
use super::stored::{label, objects};

fn prepared(command: &Create) -> Result<Vec<Part>, Failure> {
    let content = sources::read(&command.sources).map_err(Failure::usage)?;
    if !content.secret.is_empty() && matches!(command.output, Some(Format::Json | Format::Yaml)) {
        return Err(Failure::usage(
            "-o json and -o yaml would print the values of Secrets; use -o name, or leave the Secrets out",
        ));
    }
    divide(content).map_err(Failure::usage)
}

/// Says what would be created, without an API server.
pub(super) fn offline(out: Output, command: &Create, namespace: Option<&str>) -> Result<(), Failure> {
    let parts = prepared(command)?;
    let count = parts.len();
    let objects = parts.iter().zip(1..).map(|(part, number)| {
        let (plain, hashed) = names(&command.config, &command.version, number, count);
        let mut made = object(part, &command.config, &command.version, (number, count), &plain.unwrap_or(hashed));
        let metadata = match &mut made {
            Object::Map(map) => &mut map.metadata,
            Object::Secret(secret) => &mut secret.metadata,
        };
        metadata.namespace = namespace.map(str::to_owned);
        // Whoever keeps the manifest decides how long the version lives: pruned, it would be applied again, and so on for ever.
        if let Some(marks) = &mut metadata.labels {
            marks.remove(labels::PRUNE);
        }
        made
    });
    tell(out, command, &objects.collect::<Vec<_>>())
}

/// Creates.
pub(super) async fn run(session: &Session, command: &Create) -> Result<(), Failure> {
    let parts = prepared(command)?;
    let (config, version) = (&command.config, &command.version);
    let (there, _) = objects(session, config.as_str(), Some(version.as_str())).await?;
    if let Some((kind, meta)) = there.first() {
        let name = object_name(*kind, meta.name.as_deref().unwrap_or_default());
        return Err(Failure::new(format!(
            "version {version} of config {config} is there already ({name}), and a version never changes; choose another name"
        )));
    }
    let known = session.find_config(config.as_str()).await?;
    if known.is_none() {
        keeps_plain(session, config.as_str()).await?;
    }
    warn_unless_enabled(session).await;
    let listed = session.api::<VersionedConfig>().list(&ListParams::default()).await;
    let configs = listed.map_err(doing("listing configs"))?.items;
    let mut created: Vec<Object> = Vec::new();
    let count = parts.len();
    for (part, number) in parts.iter().zip(1..) {
        match create_one(session, command, part, (number, count), &configs).await {
            Ok(object) => created.push(object),
            Err(failure) => return Err(undone(session, command, &created, failure).await),
        }
    }
    if known.is_none() {
        let new = VersionedConfig::new(config.as_str(), VersionedConfigSpec::default());
        match session.api::<VersionedConfig>().create(&creating(command.dry.dry_run), &new).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                let failure = Failure::of(&format!("creating config {config}"), &error);
                return Err(undone(session, command, &created, failure).await);
            }
        }
    }
    tell(session.out, command, &created)?;
    if known.is_none() && command.output.is_none() {
        let suffix = command.dry.dry_run.suffix();
        session.out.line(&format!(
            "config {config} created{suffix}; {version} becomes current, because it is its first version"
        ))?;
    }
    Ok(())
}

/// A plain ConfigMap of the config's name would be overwritten with the first version.
async fn keeps_plain(session: &Session, config: &str) -> Result<(), Failure> {
    let plain =
        session.api::<ConfigMap>().get_opt(config).await.map_err(doing(format!("reading ConfigMap {config}")))?;
    match plain {
        Some(plain) if baseline_refusal(&plain).is_none() => Err(Failure::new(format!(
            "ConfigMap {config} has no versions yet, and the first one would overwrite it; keep what it holds with \
             kubectl nudge baseline {config}, or delete it"
        ))),
        _ => Ok(()),
    }
}

async fn warn_unless_enabled(session: &Session) {
    // Whoever may not read namespaces is not warned.
    if let Ok(Some(namespace)) = Api::<Namespace>::all(session.client.clone()).get_opt(&session.namespace).await
        && label(&namespace.metadata, labels::ENABLED) != "true"
    {
        let name = &session.namespace;
        session.out.warn(&format!(
            "namespace {name} has no label {}=true, so nothing comes of versions unless Nudge is installed for all namespaces; \
             kubectl nudge enable {name}",
            labels::ENABLED
        ));
    }
}

async fn create_one(
    session: &Session,
    command: &Create,
    part: &Part,
    place: (usize, usize),
    configs: &[VersionedConfig],
) -> Result<Object, Failure> {
    let (config, version) = (&command.config, &command.version);
    let (plain, hashed) = names(config, version, place.0, place.1);
    let plain = plain.filter(|name| !was_used(name, config, version, configs));
    let mut last = None;
    for name in plain.into_iter().chain([hashed]) {
        let what = format!("creating {}", object_name(part.kind, &name));
        let created = match object(part, config, version, place, &name) {
            Object::Map(map) => session
                .api::<ConfigMap>()
                .create(&creating(command.dry.dry_run), &map)
                .await
                .map(|map| Object::Map(Box::new(map))),
            Object::Secret(secret) => session
                .api::<Secret>()
                .create(&creating(command.dry.dry_run), &secret)
                .await
                .map(|secret| Object::Secret(Box::new(secret))),
        };
        match created {
            Ok(object) => return Ok(object),
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => {
                last = Some(Failure::of(&what, &kube::Error::Api(status)));
            }
            Err(error) => return Err(Failure::of(&what, &error)),
        }
    }
    Err(last.unwrap_or_else(|| Failure::new(format!("no name is left for an object of version {version}"))))
}

/// Removes what was created, so that nothing half is left; the failure says what could not be removed.
async fn undone(session: &Session, command: &Create, created: &[Object], mut failure: Failure) -> Failure {
    if command.dry.dry_run != DryRun::None {
        return failure;
    }
    let mut ours: Vec<(PartKind, String, Option<String>)> = created
        .iter()
        .map(|object| match object {
            Object::Map(map) => (PartKind::ConfigMap, &map.metadata),
            Object::Secret(secret) => (PartKind::Secret, &secret.metadata),
        })
        .map(|(kind, meta)| (kind, meta.name.clone().unwrap_or_default(), meta.uid.clone()))
        .collect();
    if failure.status == 0 {
        // An answer that did not arrive says nothing; before the first part there was no object of this version.
        let found = objects(session, command.config.as_str(), Some(command.version.as_str())).await;
        for (kind, meta) in found.map(|(found, _)| found).unwrap_or_default() {
            let name = meta.name.unwrap_or_default();
            if !ours.iter().any(|(of, known, _)| (*of, known) == (kind, &name)) {
                ours.push((kind, name, meta.uid));
            }
        }
    }
    let (mut removed, mut left) = (0, Vec::new());
    for (kind, name, uid) in ours {
        let how = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        let gone = match kind {
            PartKind::ConfigMap => session.api::<ConfigMap>().delete(&name, &how).await.map(drop),
            PartKind::Secret => session.api::<Secret>().delete(&name, &how).await.map(drop),
        };
        match gone {
            Ok(()) => removed += 1,
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(_) => left.push(object_name(kind, &name)),
        }
    }
    if removed > 0 {
        let message = failure.message;
        failure.message = format!("{message}; the {removed} objects created before were removed again");
    }
    if !left.is_empty() {
        let message = failure.message;
        failure.message = format!("{message}; could not be removed again: {}; delete them", left.join(", "));
    }
    failure
}

fn tell(out: Output, command: &Create, objects: &[Object]) -> Result<(), Failure> {
    let name = |object: &Object| match object {
        Object::Map(map) => format!("configmap/{}", map.metadata.name.as_deref().unwrap_or_default()),
        Object::Secret(secret) => format!("secret/{}", secret.metadata.name.as_deref().unwrap_or_default()),
    };
    match command.output {
        Some(Format::Name) => out.lines(objects.iter().map(name)),
        Some(format) => {
            let unreadable = |error: serde_json::Error| Failure::new(format!("can't write the objects: {error}"));
            let mut all: Vec<Value> = Vec::new();
            for object in objects {
                // Secrets were refused before.
                if let Object::Map(map) = object {
                    all.push(serde_json::to_value(map).map_err(unreadable)?);
                }
            }
            match &all[..] {
                [one] => out.document(one, format),
                all => out.document(&json!({"apiVersion": "v1", "kind": "List", "items": all}), format),
            }
        }
        None => {
            let suffix = command.dry.dry_run.suffix();
            out.lines(objects.iter().map(|object| format!("{} created{suffix}", name(object))))
        }
    }
}
