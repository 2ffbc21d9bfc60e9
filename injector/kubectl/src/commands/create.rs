//! `kubectl nudge create`: creates all objects of a version, or none.

use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Preconditions};
use nudge_api::{Origin, PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_authoring::{Common, Content, Keep, OPAQUE, Part, digest_name, divide, object, object_names, was_used};
use nudge_cluster::call::is_conflict;
use nudge_cluster::part_objects::write_part;
use nudge_core::baseline::{BaselineObject, baseline_refusal};
use nudge_core::derived_keys::{ContentKey, KEY_BYTES};
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{PartNumber, object_name};
use nudge_protocol::plural::{agreeing, counted};
use nudge_protocol::{ConfigName, VersionName, labels};
use ring::rand::{Random, SystemRandom, generate};
use serde_json::json;

use crate::attention::{AttendedKind, may_attend};
use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::output::{Format, Output};
use crate::session::{Session, creating};
#[cfg(unix)]
use crate::version::from_git::{self, GitFlags};
use crate::version::from_oci::{self, FromOci};
use crate::version::rules::{NamedRules, check, rules_of_config, rules_of_file};
use crate::version::sources::{self, Sources};
use crate::version::stored::{StoredPart, label, objects};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge create game 1.0.1 --from-file=config/
  kubectl nudge create game --from-file=config/
  kubectl nudge create game --from-git=https://git.example.com/team/game@v1.0.1:config/prod
  kubectl nudge create game 1.0.1 --from-literal=lives=5 --from-env-file=game.env
  kubectl nudge create game 1.0.1 --from-file=config/ --secret-from-file=tls.key=/run/keys/game.key
  kubectl nudge create game 1.0.1 --from-oci=oci://registry.example.com/team/game:1.0.1//config
  kubectl nudge create web 2 --secret-type=kubernetes.io/tls --secret-from-file=tls.crt --secret-from-file=tls.key
  kubectl nudge create game 1.0.1 --from-file=config/ --dry-run=client -o yaml > game-1.0.1.yaml
  kubectl nudge create game 1.0.1 --from-file=config/ --dry-run=client --rules=game.yaml

A version never changes. A version that is too large for one object is divided into several objects, which are created all or not at all.")]
pub(crate) struct Create {
    /// The config
    pub(crate) config: ConfigName,
    /// The name of the new version. By default it is the digest of the content; with Secrets, whose values a name must
    /// not show, the name is different each time
    pub(crate) version: Option<VersionName>,
    #[command(flatten)]
    pub(crate) sources: Sources,
    #[cfg(unix)]
    #[command(flatten)]
    pub(crate) git: GitFlags,
    #[command(flatten)]
    pub(crate) oci: FromOci,
    /// The type of the Secrets, such as kubernetes.io/tls; a published Secret has it too
    #[arg(long, value_name = "TYPE", help_heading = "Content")]
    pub(crate) secret_type: Option<String>,
    /// Check the content by the rules of this file (a VersionedConfig or a list of rules), not by those of the config
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<String>,
    /// Print the objects; not with Secrets, whose values are never printed
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Format>,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

impl Create {
    /// Returns whether the command sends no request to an API server.
    pub(crate) fn is_offline(&self) -> bool {
        self.dry.dry_run == DryRun::Client
    }
}

/// A version before its objects are created.
struct NewVersion {
    version: VersionName,
    parts: Vec<Part>,
    /// The annotation with the origin.
    origin: Option<String>,
}

/// Reads the content, divides it into parts, and names the version.
async fn read_version(command: &Create) -> Result<NewVersion, Failure> {
    let mut content = Content::default();
    #[cfg(unix)]
    let mut origins = from_git::add(&mut content, &command.git).await?;
    #[cfg(not(unix))]
    let mut origins = Vec::new();
    origins.extend(from_oci::add(&mut content, &command.oci).await?);
    let fetched_count = content.open.len();
    sources::add(&mut content, &command.sources).map_err(Failure::usage)?;
    // Mixed content has no origin.
    let is_unmixed = origins.len() == 1 && content.open.len() + content.secret.len() == fetched_count;
    let origin = origins.pop().filter(|_| is_unmixed);
    sources::check(&content).map_err(Failure::usage)?;
    let has_secret = !content.secret.is_empty();
    if has_secret && matches!(command.output, Some(Format::Json | Format::Yaml)) {
        return Err(Failure::usage(
            "-o json and -o yaml would print the values of Secrets; use -o name, or omit the Secrets",
        ));
    }
    if !has_secret && command.secret_type.is_some() {
        return Err(Failure::usage("--secret-type needs at least one Secret value; use --secret-from-file"));
    }
    let parts = divide(content).map_err(|error| Failure::usage(error.to_string()))?;
    let new_key =
        || generate(&SystemRandom::new()).map(|bytes: Random<[u8; KEY_BYTES]>| ContentKey::new(&bytes.expose()));
    let version = match &command.version {
        Some(version) => version.clone(),
        None => has_secret
            .then(new_key)
            .transpose()
            .map_err(|_| Failure::new("the operating system gives no random bytes; name the version"))
            .and_then(|key| digest_name(&parts, key.as_ref()).map_err(|error| Failure::new(error.to_string())))?,
    };
    Ok(NewVersion { version, parts, origin: origin.as_ref().and_then(Origin::annotation) })
}

/// Returns the object of the part that has this number.
fn part_object(command: &Create, new: &NewVersion, part: &Part, number: PartNumber, name: &str) -> PublishedObject {
    let common = Common {
        config: &command.config,
        version: &new.version,
        keep: Keep::Config,
        secret_type: command.secret_type.as_deref().unwrap_or(OPAQUE),
        origin: new.origin.as_deref(),
        set_by: None,
    };
    object(part, &common, number, name)
}

/// Refuses content that breaks the rules.
fn check_rules(rules: &NamedRules, parts: &[Part]) -> Result<(), Failure> {
    check(rules, parts.iter().map(|part| (part.kind, &part.content)))
        .map_err(|report| Failure::new(format!("the content breaks the rules of {}: {report}", rules.name)))
}

/// Prints the objects that the command would create.
pub(crate) async fn print_offline(out: &Output, command: &Create, namespace: Option<&str>) -> Result<(), Failure> {
    let new = read_version(command).await?;
    if let Some(path) = &command.rules {
        check_rules(&rules_of_file(path)?, &new.parts)?;
    }
    let objects = new.parts.iter().zip(PartNumber::sequence(new.parts.len())).map(|(part, number)| {
        let (readable, hashed) = object_names(&command.config, &new.version, number);
        let mut object = part_object(command, &new, part, number, &readable.unwrap_or(hashed));
        let metadata = &mut object.metadata;
        metadata.namespace = namespace.map(str::to_owned);
        // A version that is kept as a manifest must not be pruned: the next apply would create it again.
        if let Some(labels) = &mut metadata.labels {
            labels.remove(labels::PRUNE);
        }
        object
    });
    print(out, command, &objects.collect::<Vec<_>>())
}

pub(crate) async fn run(session: &Session, command: &Create) -> Result<(), Failure> {
    let new = read_version(command).await?;
    let (config, NewVersion { version, parts, .. }) = (&command.config, &new);
    let (existing, _) = objects(session, config.as_str(), Some(version.as_str())).await?;
    if let Some((kind, meta)) = existing.first() {
        let name = object_name(*kind, meta.name.as_deref().unwrap_or_default());
        let hint = match command.version {
            Some(_) => "and a version never changes; choose another name",
            None => "with this content",
        };
        return Err(Failure::new(format!("version {version} of config {config} already exists ({name}), {hint}")));
    }
    let existing_config = session.find_config(config.as_str()).await?;
    match (&command.rules, &existing_config) {
        (Some(path), _) => check_rules(&rules_of_file(path)?, parts)?,
        (None, Some(config)) if !config.spec.validation.is_empty() => {
            check_rules(&rules_of_config(session, config).await?, parts)?;
        }
        _ => {}
    }
    if existing_config.is_none() {
        check_existing_map(session, config.as_str()).await?;
    }
    warn_unless_enabled(session).await;
    let configs = session.list::<VersionedConfig>("configs").await?;
    let mut created: Vec<PublishedObject> = Vec::new();
    for (part, number) in parts.iter().zip(PartNumber::sequence(parts.len())) {
        match create_part(session, command, &new, part, number, &configs).await {
            Ok(object) => created.push(object),
            Err(failure) => return Err(undo(session, command, version, &created, failure).await),
        }
    }
    if existing_config.is_none() {
        let new = VersionedConfig::new(config.as_str(), VersionedConfigSpec::default());
        match session.api::<VersionedConfig>().create(&creating(command.dry.dry_run), &new).await {
            Ok(_) => {}
            Err(error) if is_conflict(&error) => {}
            Err(error) => {
                let failure = Failure::of(&format!("creating config {config}"), &error);
                return Err(undo(session, command, version, &created, failure).await);
            }
        }
    }
    print(&session.out, command, &created)?;
    if existing_config.is_none() && command.output.is_none() {
        let suffix = command.dry.dry_run.suffix();
        let with_secret = parts.iter().any(|part| part.kind == PartKind::Secret);
        let effect = if with_secret && may_attend(session, AttendedKind::Secrets).await == Some(false) {
            format!(
                "{version} becomes current when Nudge may read the Secrets of the namespace: {}",
                AttendedKind::Secrets.remedy(&session.namespace)
            )
        } else {
            format!("{version} becomes current, because it is the first version")
        };
        session.out.line(&format!("config {config} created{suffix}; {effect}"))?;
    }
    Ok(())
}

/// Refuses to create the first version if there is a ConfigMap of the same name: the version should be made from it.
async fn check_existing_map(session: &Session, config: &str) -> Result<(), Failure> {
    let map = session.api::<ConfigMap>().get_opt(config).await.map_err(doing(format!("reading ConfigMap {config}")))?;
    match map {
        Some(map) if baseline_refusal(&BaselineObject::from(&map)).is_none() => Err(Failure::new(format!(
            "ConfigMap {config} has no versions yet, and the first one would lack its content; keep its content with \
             kubectl nudge baseline {config}, or delete it"
        ))),
        _ => Ok(()),
    }
}

async fn warn_unless_enabled(session: &Session) {
    // Without the right to read namespaces there is no warning.
    if let Ok(Some(namespace)) = Api::<Namespace>::all(session.client.clone()).get_opt(&session.namespace).await
        && label(&namespace.metadata, labels::ENABLED) != "true"
    {
        let name = &session.namespace;
        session.out.warn(&format!(
            "namespace {name} has no label {}=true, so Nudge ignores its versions unless it is installed for all namespaces; \
             enable it with kubectl nudge enable {name}",
            labels::ENABLED
        ));
    }
}

/// Creates the object of a part, under the first of its names that is not taken.
async fn create_part(
    session: &Session,
    command: &Create,
    new: &NewVersion,
    part: &Part,
    number: PartNumber,
    configs: &[VersionedConfig],
) -> Result<PublishedObject, Failure> {
    let (config, version) = (&command.config, &new.version);
    let (readable, hashed) = object_names(config, version, number);
    let readable = readable.filter(|name| !was_used(name, config, version, configs));
    let (params, mut last_failure) = (creating(command.dry.dry_run), None);
    for name in readable.into_iter().chain([hashed]) {
        let context = format!("creating {}", object_name(part.kind, &name));
        let object = part_object(command, new, part, number, &name);
        match write_part(&session.client, &session.namespace, &object, &params, None).await {
            Ok(object) => return Ok(object),
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => {
                last_failure = Some(Failure::of(&context, &kube::Error::Api(status)));
            }
            Err(error) => return Err(Failure::of(&context, &error)),
        }
    }
    Err(last_failure.unwrap_or_else(|| Failure::new(format!("all names for an object of version {version} are taken"))))
}

/// Removes the objects that were created before a failure. The failure then names those that could not be removed.
async fn undo(
    session: &Session,
    command: &Create,
    version: &VersionName,
    created: &[PublishedObject],
    mut failure: Failure,
) -> Failure {
    if command.dry.dry_run != DryRun::None {
        return failure;
    }
    let mut parts: Vec<StoredPart> = created.iter().map(|object| (object.kind, object.metadata.clone())).collect();
    if failure.status == 0 {
        // Without an answer, the API server may have created the object. All objects of the version are of this
        // command.
        let stored = objects(session, command.config.as_str(), Some(version.as_str())).await;
        for (kind, meta) in stored.map(|(stored, _)| stored).unwrap_or_default() {
            if !parts.iter().any(|(part_kind, part)| (*part_kind, &part.name) == (kind, &meta.name)) {
                parts.push((kind, meta));
            }
        }
    }
    let (mut removed, mut remaining) = (0, Vec::new());
    for (kind, ObjectMeta { name, uid, .. }) in parts {
        let name = name.unwrap_or_default();
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match session.parts(kind).delete(&name, &parameters).await {
            Ok(_) => removed += 1,
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(_) => remaining.push(object_name(kind, &name)),
        }
    }
    if removed > 0 {
        let message = failure.message;
        let (objects, verb) = (counted(removed, "object"), agreeing(removed, "was", "were"));
        failure.message = format!("{message}; {objects} created before {verb} removed");
    }
    if !remaining.is_empty() {
        let message = failure.message;
        failure.message = format!("{message}; could not be removed: {}; delete them", remaining.join(", "));
    }
    failure
}

fn print(out: &Output, command: &Create, objects: &[PublishedObject]) -> Result<(), Failure> {
    let name = |object: &PublishedObject| format!("{}/{}", object.kind.to_string().to_lowercase(), object.name());
    match command.output {
        Some(Format::Name) => out.lines(objects.iter().map(name)),
        Some(format) => {
            let failure = |error: serde_json::Error| Failure::new(format!("can't write the objects: {error}"));
            // A command with Secrets was refused before.
            let maps = objects.iter().filter(|object| object.kind == PartKind::ConfigMap);
            let documents = maps.map(|map| serde_json::to_value(map.config_map())).collect::<Result<Vec<_>, _>>();
            let documents = documents.map_err(failure)?;
            match &documents[..] {
                [document] => out.document(document, format),
                documents => out.document(&json!({"apiVersion": "v1", "kind": "List", "items": documents}), format),
            }
        }
        None => {
            let suffix = command.dry.dry_run.suffix();
            out.lines(objects.iter().map(|object| format!("{} created{suffix}", name(object))))
        }
    }
}
